// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The memory of images.

use super::*;
use cubin::UNIT;

const MIB: u64 = 1 << 20;

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

fn ptx(body: &str) -> Result<u64, Broken> {
    ptx::declared(format!("{HEAD}{body}\n").as_bytes()).map(|declared| declared.variables)
}

/// Checks that the variables take this number of bytes, or slightly more.
#[track_caller]
fn takes(body: &str, bytes: u64) {
    let found = ptx(body).unwrap_or_else(|broken| panic!("{body}: {broken}"));
    assert!(found >= bytes && found <= bytes + 160, "{body}: {found}");
}

#[test]
fn variables_of_ptx_count_as_they_are_declared() {
    takes(".global .align 4 .b8 x[1048576];", MIB);
    takes(".visible .global .align 16 .v4 .f32 x[0x10000];", MIB);
    takes(".global .u64 x[256][512];", MIB);
    takes(".const .b32 c[1024];", 4096);
    takes(".global .b32 a[1024], b[1024];", 8192);
    takes(
        ".global .align 1 .b8 text[4] = {1, 2, 3, 4}; .global .f64 y;",
        12,
    );
    takes(".global .align 4096 .b8 x;", 4096);
    takes(".global .u32 x<8>;", 32);
    takes(".extern .global .b8 x[4096];", 4096);
    takes(".extern .global .b8 x[];", 0);
    // The initial value determines the number of elements.
    takes(".global .u64 x[] = {1,2,3,4,5,6,7,8};", 64);
    takes(".visible .global .b8 x[][1048576]={{1},{2,3}};", 3 * MIB);
    takes(
        ".global .u64 x[] = {(1+2)*3, ~0x2, 1<2?3:4, (.s64)5U, 7 % 4};",
        40,
    );
    takes(".global .f16x2 x[262144];", MIB);
    takes(".global .b128 x[65536];", MIB);
    // Octal, binary, and without a sign.
    takes(".global .b8 x[04000000];", MIB);
    takes(".global .b8 x[0b100000000000000000000];", MIB);
    takes(".global .b8 x[0X100000U];", MIB);
    // The alignment may come first.
    takes(".visible .align 1048576 .global .b8 x;", MIB);
    takes(".visible .global .texref t; .global .surfref s;", 128);
    takes(".const[0] .b8 x[1048576];", MIB);
}

/// NVIDIA's ptxas accepts each of these except the last, and makes it a variable.
#[test]
fn no_way_to_write_a_variable_hides_it() {
    for body in [
        ".visible.global.b8 x[1048576];",
        ".visible.const.b8 x[1048576];",
        ".weak.const.align 4 .b8 x[1048576];",
        ".common.global.b8 x[1048576];",
        ".extern.global.b8 x[1048576];",
        ".global.v4.f32 x[65536];",
        ".global .b8%x[1048576];",
        ".global .b8/**/x/**/[/**/1048576/*]*/];",
        ".global//\n.b8//\nx[//\n1048576];",
        ".global\r.b8\tx\x0c[\x1a1048576\n]\r\n;",
        ".visible .global .attribute(.managed) .b8 x[1048576];",
        ".visible .attribute(.managed) .global .b8 x[1048576];",
        ".visible.global.attribute(.managed).align 8 .b8 x[1048576];",
        ".global .attribute(.unified(19,95)) .b8 x[1048576];",
        ".global .b8 y = 1+2*3, x[1048576];",
        ".global .b8 y = ((1>2)?3:4), x[1048576];",
        ".global .u64 y[2] = {x, generic(x)+4}, z[131072];",
        // After other beginnings and ends of a statement.
        ".file 1 \"x\" .global .b8 x[1048576];",
        ".file 1 \"x\".global .b8 x[1048576];",
        ".file 1 \"x\", 1, 2 .global .b8 x[1048576];",
        ".target sm_90.global.b8 x[1048576];",
        ".target sm_90,texmode_unified.global.b8 x[1048576];",
        ".section .debug_str { .b8 1,2 }.global.b8 x[1048576];",
        ".func f() { ret; }.visible .global .b8 x[1048576];",
        ".entry k() { .global .b8 x[1048576]; ret; }",
        ".entry k() { { .const .b8 x[1048576]; } ret; }",
        ".entry k() { L: .global .b8 x[1048576]; ret; }",
        ".entry k() { .loc 1 1 1 .global .b8 x[1048576]; ret; }",
        ".entry k() { .pragma \"nounroll\"; .global .b8 x[1048576]; ret; }",
        ".entry k(.param .u64 .ptr .global .align 8 p) { .global .b8 x[1048576]; ret; }",
        // After the end of a comment or a string.
        "/* /* */.global .b8 x[1048576];/* */",
        "/* \\*/.global .b8 x[1048576];/* */",
        "//*\n.global .b8 x[1048576];//*/",
        "/**/.global .b8 x[1048576];",
        "// \\\n.global .b8 x[1048576];",
        // Words that other versions may accept as names.
        ".global .b8 \u{e4}[1048576];",
    ] {
        takes(body, MIB);
    }
}

#[test]
fn variables_outside_device_memory_do_not_count() {
    for body in [
        "// .global .b8 x[1048576];\n/* .global .b8 y[1048576]; */",
        "// \r.global .b8 x[1048576];\n",
        "/*/.global .b8 x[1048576];/* */",
        ".file 1 \"a\n.global .b8 x[1048576];\n\"",
        ".shared .align 8 .b8 x[1048576]; .extern .shared .b8 y[];",
        ".func (.param .b32 r) f (.param .align 8 .b8 a[1048576]) { .local .b8 x[1048576]; ret; }",
        ".visible .entry k(.param .u64 .ptr .global .align 4 p) { ld.global.u32 %r1, [%rd1]; ret; }",
        ".visible .entry k(.param .u64 .ptr.const.align 4 p, .param .b32 q) .maxntid 1,2,3 { ret; }",
        ".entry k() { @!%p1 ld .global .v4.u32 {%r1,%r2,%r3,%r4}, [%rd1]; }",
        ".entry k() { L: st.weak.global.u32 [%rd1+4], %r1; cvta.to.global.u64 %rd1, %rd2; }",
        ".entry k() { .loc 1 25 3\nld/**/.global.u32 %r1, [x]; ld.const.f32 %f1, [c+4]; }",
        ".entry k() { .loc 1 2 3, function_name $L__i0, inlined_at 1 2 3\natom.global.add.u32 %r1, [%rd1], 1; }",
        ".entry k() { .reg .b64 global; ld.global.u32 %r1,[global]; prefetch.global.L2 [%rd1]; }",
        ".entry k() { cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3]; }",
        ".section .debug_info\n{\n.b32 .debug_abbrev\n.b64 $L__tmp0\n.b8 1,2\n$L__end:\n}",
        ".alias a, b; .pragma \"nounroll\";",
    ] {
        takes(body, 0);
    }
}

#[test]
fn pitfall_67_a_size_that_is_not_a_number_is_refused() {
    for body in [
        ".global .b8 x[1<<30];",
        ".global .b8 x[(1024)];",
        ".global .b8 x[SIZE];",
        ".global .b8 x[-1];",
        ".global .b8 x[10 24];",
        ".global .b8 x[1e9];",
        ".global .b8 x[1024u];",
        "#define SIZE 5\n",
        ".MACRO decl\n.visible .global .b8 x[1024];\n.ENDMACRO",
        ".IF 0 /* .ENDIF .global .b8 x[1024]; /* */",
        ".global .b8 x[99999999999999999999];",
        ".global .b8 x[4",
        ".global .b8 x[4]",
        ".global x[4];",
        ".global .b8 [4];",
        ".global .b8 x[4] .b8 y[4];",
        ".global .b8 x[] = \"text\";",
        ".global .attribute(.managed .b8 x[1024];",
        "/* .global .b8 x[1024];",
        ".file 1 \"a\\\" .global .b8 x[1024]; //\"",
    ] {
        assert!(ptx(body).is_err(), "{body}");
    }
    // An overflow counts as the maximum.
    let all = ptx(".global .b64 x[4294967295][4294967295][4294967295];").unwrap();
    assert_eq!(all, u64::MAX);
    // Text that is not PTX may be anything that a driver can load.
    for image in [
        &b""[..],
        b"\0",
        b".target sm_90",
        b"BC\xc0\xde",
        b"\x7fTileIR\0",
    ] {
        assert!(device_bytes(image, 90).is_err(), "{image:?}");
    }
    assert!(device_bytes(b"// made by hand\n.version 8.0 .target sm_90", 90).is_ok());
}

/// The sizes are those of ptxas 13.0's output for sm_90.
#[test]
fn code_counts_with_its_compiled_size() {
    let code = |body: &str, times: usize| {
        let text = format!("{HEAD}.entry k() {{ {} ret; }}", body.repeat(times));
        ptx::declared(text.as_bytes()).unwrap().code
    };
    for (statement, bytes) in [
        ("rem.s32 a,b,a;", 336),
        ("sqrt.rn.f64 a,a;", 417),
        ("div.rn.f64 a,b,a;", 321),
        ("mul.hi.u64 a,b,c;", 112),
        ("vmin2.s32.u32.s32.sat a,b,a,a;", 288),
        ("st.global.u32 [a],b;", 28),
        (
            "L: mad.lo.u32 a,a,b,a; xor.b32 b,a,b; add.u32 i,i,1; setp.lt.u32 p,i,1000; @p bra L;",
            32_128,
        ),
        (
            "M: add.u32 i,i,1; setp.lt.u32 p,i,1000; @p bra.uni M;",
            16_128,
        ),
    ] {
        let found = code(statement, 100);
        assert!(found >= 100 * bytes, "{statement}: {found}");
    }
    // A jump ahead is no loop.
    assert!(code("@p bra L; L:", 1) < 10_000);
    let kernels = ptx::declared(format!("{HEAD}{}", ".entry k(){}".repeat(100)).as_bytes());
    assert!(kernels.unwrap().code >= 100 * 2 * 4096);
    let parameters = format!("{HEAD}.entry k(.param .align 8 .b8 p[32764]){{}}");
    assert!(ptx::declared(parameters.as_bytes()).unwrap().code >= 32_764);
    // Initial values are no code.
    let table = format!("{HEAD}.global .b8 x[] = {{{}0}};", "0,".repeat(1 << 20));
    assert!(ptx::declared(table.as_bytes()).unwrap().code < 10_000);
}

/// A section of a cubin.
#[derive(Clone, Copy)]
struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    bytes: u64,
}

const fn section(name: &'static str, kind: u32, flags: u64, bytes: u64) -> Section {
    Section {
        name,
        kind,
        flags,
        bytes,
    }
}

/// A section that the driver loads, without bytes in the file.
const fn loaded(bytes: u64) -> Section {
    section(".nv.global", 8, 2, bytes)
}

fn put<const N: usize>(to: &mut [u8], at: usize, value: [u8; N]) {
    to[at..at + N].copy_from_slice(&value);
}

/// A cubin of these sections, after the section with their names.
fn elf(sections: &[Section]) -> Vec<u8> {
    let mut elf = vec![0; 64];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    put(&mut elf, 40, 64_u64.to_le_bytes());
    put(&mut elf, 54, 56_u16.to_le_bytes());
    put(&mut elf, 58, 64_u16.to_le_bytes());
    put(&mut elf, 60, (1 + sections.len() as u16).to_le_bytes());
    let names = 64 * (2 + sections.len());
    let mut text = Vec::new();
    let all: usize = sections.iter().map(|of| of.name.len() + 1).sum();
    let own = section(".shstrtab", 3, 0, (".shstrtab ".len() + all) as u64);
    for section in std::iter::once(&own).chain(sections) {
        let mut header = [0; 64];
        put(&mut header, 0, (text.len() as u32).to_le_bytes());
        put(&mut header, 4, section.kind.to_le_bytes());
        put(&mut header, 8, section.flags.to_le_bytes());
        put(&mut header, 24, (names as u64).to_le_bytes());
        put(&mut header, 32, section.bytes.to_le_bytes());
        elf.extend(header);
        text.extend(section.name.as_bytes());
        text.push(0);
    }
    elf.extend(text);
    elf
}

#[test]
fn sections_of_a_cubin_count_if_anything_says_that_they_are_loaded() {
    let takes = |sections: &[Section]| device_bytes(&elf(sections), 90);
    let debug = section(".debug_info", 1, 0, 5 * MIB);
    let sections = [loaded(100 * MIB), debug, loaded(1)];
    assert_eq!(takes(&sections), Ok(100 * MIB + UNIT + OVERHEAD));
    for counted in [
        section(".nv.global", 8, 3, MIB),
        section(".nv.global", 8, 0, MIB),
        section(".nv.global", 1, 0, MIB),
        section(".nv.global.init", 3, 0, MIB),
        section(".nv.constant3", 1, 0, MIB),
        section(".nv.global", 0x7000_0000, 0, MIB),
        section("any", 8, 0, MIB),
        section("any", 0x7000_0007, 0, MIB),
        section(".nv.merc.nv.global.init", 0x7000_0008, 0x1000_0003, MIB),
    ] {
        assert_eq!(takes(&[counted]), Ok(MIB + OVERHEAD), "{}", counted.name);
    }
    for apart in [
        section(".nv.info.k", 0x7000_0000, 0x40, MIB),
        section(".nv_debug_ptx_txt", 1, 0, MIB),
        section(".note.nv.cuinfo", 7, 0x0100_0040, MIB),
        section("", 0, 2, MIB),
    ] {
        assert_eq!(takes(&[apart]), Ok(OVERHEAD), "{}", apart.name);
    }
    assert_eq!(takes(&[loaded(u64::MAX), loaded(u64::MAX)]), Ok(u64::MAX));
    // A section that must begin at a multiple of a megabyte occupies all of it.
    let mut aligned = elf(&[loaded(1)]);
    put(&mut aligned, 64 + 64 + 48, MIB.to_le_bytes());
    assert_eq!(device_bytes(&aligned, 90), Ok(MIB + OVERHEAD));
}

#[test]
fn a_cubin_that_readers_may_see_differently_is_refused() {
    let image = elf(&[loaded(100 * MIB), loaded(1)]);
    let headers = image.len() - ".shstrtab .nv.global .nv.global ".len();
    for length in 4..=headers {
        assert!(device_bytes(&image[..length], 90).is_err(), "{length}");
    }
    for size in [0_u16, 40, 63, 65, 128] {
        let mut other = image.clone();
        put(&mut other, 58, size.to_le_bytes());
        assert!(device_bytes(&other, 90).is_err(), "headers of {size} bytes");
    }
    let mut other = image.clone();
    put(&mut other, 56, 1_u16.to_le_bytes());
    put(&mut other, 54, 64_u16.to_le_bytes());
    assert!(device_bytes(&other, 90).is_err(), "segments of 64 bytes");
    for (at, value) in [(4, 1), (5, 2)] {
        let mut other = image.clone();
        other[at] = value;
        assert!(device_bytes(&other, 90).is_err(), "32 bits, or big-endian");
    }
    // The number of sections is in the first header, as is the index of the section with the names.
    let mut many = image.clone();
    put(&mut many, 60, 0_u16.to_le_bytes());
    put(&mut many, 64 + 32, 3_u64.to_le_bytes());
    assert_eq!(device_bytes(&many, 90), Ok(100 * MIB + UNIT + OVERHEAD));
    put(&mut many, 62, 0xffff_u16.to_le_bytes());
    assert!(device_bytes(&many, 90).is_ok());
    put(&mut many, 64 + 40, 77_u32.to_le_bytes());
    assert!(device_bytes(&many, 90).is_err(), "no names");
    put(&mut many, 64 + 32, u64::MAX.to_le_bytes());
    assert!(device_bytes(&many, 90).is_err(), "no end of sections");
}

#[test]
fn segments_and_common_symbols_count_too() {
    let mut image = elf(&[loaded(MIB)]);
    let segments = image.len() as u64;
    put(&mut image, 32, segments.to_le_bytes());
    put(&mut image, 56, 2_u16.to_le_bytes());
    for (kind, bytes) in [(1_u32, 3 * MIB), (0x7000_0001, 4 * MIB)] {
        let mut header = [0; 56];
        put(&mut header, 0, kind.to_le_bytes());
        put(&mut header, 40, bytes.to_le_bytes());
        image.extend(header);
    }
    assert_eq!(device_bytes(&image, 90), Ok(7 * MIB + OVERHEAD));
    let mut image = elf(&[section(".symtab", 2, 0, 48)]);
    let symbols = image.len() as u64;
    put(&mut image, 64 + 64 + 24, symbols.to_le_bytes());
    for (section, bytes) in [(1_u16, 3 * MIB), (0xfff2, 4 * MIB)] {
        let mut symbol = [0; 24];
        put(&mut symbol, 6, section.to_le_bytes());
        put(&mut symbol, 16, bytes.to_le_bytes());
        image.extend(symbol);
    }
    assert_eq!(device_bytes(&image, 90), Ok(4 * MIB + OVERHEAD));
}

#[test]
fn variables_of_managed_memory_count_with_the_chunks_that_they_keep() {
    let of = |body: &str| {
        let text = format!("{HEAD}{body}\n");
        let declared = ptx::declared(text.as_bytes()).unwrap();
        let taken = device_bytes(text.as_bytes(), 90).unwrap();
        taken - declared.variables - declared.code - OVERHEAD
    };
    assert_eq!(of(".global .b8 x[1048576];"), 0);
    for body in [
        ".visible .global .attribute(.managed) .b8 x[1048576];",
        ".visible .attribute(.managed) .global .b8 x[1048576];",
        ".global .b8 y[8388608]; .global.attribute(.managed, .unified(1,2)).b8 x[1048576];",
        ".global/**/.attribute(/*)*/.managed)\t.b8 x[524288]; .global .attribute(.managed) .b8 y[524288];",
    ] {
        let beside = of(body);
        let least = MIB + MANAGED_CHUNK;
        assert!((least..least + 160).contains(&beside), "{body}: {beside}");
    }
    // ptxas 13.0 marks the symbol this way.
    let mut image = elf(&[
        section(".nv.global", 8, 3, 9 * MIB),
        section(".symtab", 2, 0, 48),
    ]);
    let symbols = image.len() as u64;
    put(&mut image, 64 + 128 + 24, symbols.to_le_bytes());
    for (other, bytes) in [(4_u8, MIB), (0x10, 4 * MIB)] {
        let mut symbol = [0; 24];
        put(&mut symbol, 5, [other]);
        put(&mut symbol, 6, 1_u16.to_le_bytes());
        put(&mut symbol, 16, bytes.to_le_bytes());
        image.extend(symbol);
    }
    let all = 9 * MIB + MIB + MANAGED_CHUNK + OVERHEAD;
    assert_eq!(device_bytes(&image, 90), Ok(all));
}

/// A container with these entries: kind, architecture, contents.
fn container(entries: &[(u16, u32, &[u8])]) -> Vec<u8> {
    let mut all = Vec::new();
    for (kind, arch, contents) in entries {
        let packed = lz4_flex::block::compress(contents);
        let mut entry = vec![0; 64];
        entry[..2].copy_from_slice(&kind.to_le_bytes());
        entry[4..8].copy_from_slice(&64_u32.to_le_bytes());
        entry[8..16].copy_from_slice(&(packed.len() as u64).to_le_bytes());
        entry[16..20].copy_from_slice(&(packed.len() as u32).to_le_bytes());
        entry[28..32].copy_from_slice(&arch.to_le_bytes());
        entry[40..48].copy_from_slice(&fatbin::FLAG_LZ4.to_le_bytes());
        entry[56..64].copy_from_slice(&(contents.len() as u64).to_le_bytes());
        all.extend(entry);
        all.extend(packed);
    }
    let mut whole = fatbin::CONTAINER_MAGIC.to_le_bytes().to_vec();
    whole.extend(1_u16.to_le_bytes());
    whole.extend(16_u16.to_le_bytes());
    whole.extend((all.len() as u64).to_le_bytes());
    whole.extend(all);
    whole
}

/// The offset of the first entry's header.
const ENTRY: usize = 16;

#[test]
fn of_a_fatbin_the_largest_counts_that_the_device_runs() {
    let [small, large, huge] = [3, 7, 100].map(|bytes| elf(&[loaded(bytes * MIB)]));
    let text = b".version 8.0\n.target sm_80\n.global .b8 x[9437184];\n\0\0\0";
    // An entry of an unknown kind counts by its content.
    let image = container(&[
        (2, 80, &small),
        (16, 90, &large),
        (2, 100, &huge),
        (1, 90, text),
    ]);
    assert_eq!(device_bytes(&image, 80), Ok(3 * MIB + OVERHEAD));
    assert!((9 * MIB..10 * MIB).contains(&device_bytes(&image, 90).unwrap()));
    assert_eq!(device_bytes(&image, 100), Ok(100 * MIB + OVERHEAD));
    for length in 4..image.len() {
        assert!(device_bytes(&image[..length], 90).is_err());
    }
}

#[test]
fn an_entry_of_a_fatbin_that_cannot_be_counted_is_refused() {
    let text = b".version 8.0\n.target sm_80\n";
    for (kind, arch, contents) in [
        (8, 90, &b"BC\xc0\xde"[..]),
        (1, 90, b".target sm_80"),
        (1, 90, b".version 8.0 \0 .global .b8 x[1073741824];"),
        (64, 75, b"something new"),
    ] {
        let image = container(&[(1, 80, text), (kind, arch, contents)]);
        assert!(device_bytes(&image, 90).is_err(), "{contents:?}");
    }
    // Images for other devices may be anything.
    let image = container(&[(1, 80, text), (8, 100, b"BC\xc0\xde")]);
    assert!(device_bytes(&image, 90).is_ok());
    // Readers must agree on the kind of an unpacked entry.
    for (at, value) in [
        (40, 0_u64),
        (40, fatbin::FLAG_LZ4 | fatbin::FLAG_ZSTD),
        (56, text.len() as u64 - 1),
        (56, text.len() as u64 + 1),
    ] {
        let mut image = container(&[(1, 80, text)]);
        put(&mut image, ENTRY + at, value.to_le_bytes());
        assert!(device_bytes(&image, 90).is_err(), "{at}: {value}");
    }
}

/// An entry of 510 MiB of zeros, in 2 MiB of LZ4.
#[test]
fn an_entry_that_unpacks_to_very_much_is_refused_before_it_is_unpacked() {
    let too_large = Err(Broken::new("an entry of the fatbin is too large to unpack"));
    // A literal, then a match at the distance 1 whose length is the sum of the following bytes, then five literals.
    let mut packed = b"\x1f\0\x01\0".to_vec();
    packed.resize(2 << 20, 0xff);
    packed.extend(b"\0\x50\0\0\0\0\0");
    let whole = 1 + 19 + 255 * ((2 << 20) - 4) + 5;
    let mut image = container(&[(1, 80, b"")]);
    image.truncate(ENTRY + 64);
    image.extend(&packed);
    put(&mut image, 8, (64 + packed.len() as u64).to_le_bytes());
    put(&mut image, ENTRY + 8, (packed.len() as u64).to_le_bytes());
    put(&mut image, ENTRY + 16, (packed.len() as u32).to_le_bytes());
    for (claimed, expected) in [
        (whole as u64, too_large.clone()),
        (fatbin::MOST_UNPACKED as u64 + 1, too_large),
    ] {
        put(&mut image, ENTRY + 56, claimed.to_le_bytes());
        assert_eq!(device_bytes(&image, 90), expected);
        assert_eq!(fatbin::most_unpacked(&image), 0);
    }
    // It contains more than its header says.
    put(&mut image, ENTRY + 56, 4096_u64.to_le_bytes());
    assert!(device_bytes(&image, 90).is_err());
    assert_eq!(fatbin::most_unpacked(&image), 4096);
    let text = b".version 8.0\n.target sm_80\n";
    let honest = container(&[(1, 80, text), (1, 100, &text[..9])]);
    assert_eq!(fatbin::most_unpacked(&honest), text.len());
    assert_eq!(fatbin::most_unpacked(text), 0);
}

#[test]
fn a_container_of_very_many_entries_is_refused() {
    let image = container(&vec![(2, 80, &b""[..]); 1 << 16]);
    assert!(fatbin::entries(&Contents(&image)).is_ok());
    let image = container(&vec![(2, 80, &b""[..]); (1 << 16) + 1]);
    assert!(fatbin::entries(&Contents(&image)).is_err());
}

#[test]
fn a_second_frame_of_an_entry_is_not_overlooked() {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    let first = b".version 8.0\n.target sm_80\n".as_slice();
    let second = b".global .b8 x[1073741824];\n".as_slice();
    let frame = |text| compress_to_vec(text, CompressionLevel::Uncompressed);
    let packed = [frame(first), frame(second)].concat();
    let mut image = container(&[(1, 80, b"")]);
    image.truncate(ENTRY + 64);
    image.extend(&packed);
    put(&mut image, 8, (64 + packed.len() as u64).to_le_bytes());
    put(&mut image, ENTRY + 8, (packed.len() as u64).to_le_bytes());
    put(&mut image, ENTRY + 16, (packed.len() as u32).to_le_bytes());
    put(&mut image, ENTRY + 40, fatbin::FLAG_ZSTD.to_le_bytes());
    let whole = (first.len() + second.len()) as u64;
    put(&mut image, ENTRY + 56, whole.to_le_bytes());
    assert!(device_bytes(&image, 90).is_err());
}

#[test]
fn a_fatbin_counts_as_the_image_that_the_device_runs() {
    let entries: [(u16, u32, &[u8]); 6] = [
        (2, 75, b"code for 7.5"),
        (2, 80, b"code for 8.0"),
        (2, 90, b"code for 9.0"),
        (1, 80, b"text for 8.0"),
        (1, 100, b"text for 10.0"),
        (9, 75, b"something else"),
    ];
    let whole = container(&entries);
    let of = |kept: &[usize]| container(&kept.iter().map(|at| entries[*at]).collect::<Vec<_>>());
    let useful = |image: &[u8], capabilities: &[u32]| {
        let entries = fatbin::entries(&Contents(image)).ok()?;
        fatbin::with(image, &entries, |entry| entry.is_useful(capabilities))
    };
    assert_eq!(useful(&whole, &[90]), Some(of(&[2, 3, 5])));
    assert_eq!(useful(&whole, &[86]), Some(of(&[1, 3, 5])));
    assert_eq!(useful(&whole, &[75, 90]), Some(of(&[0, 2, 3, 5])));
    assert_eq!(useful(&whole, &[120]), Some(of(&[3, 4, 5])));
    // Nothing is left out, or everything would be: the driver reports the error.
    assert_eq!(useful(&of(&[2, 3]), &[90]), None);
    assert_eq!(useful(&of(&[0, 4]), &[90]), None);
    assert_eq!(useful(&whole[..whole.len() - 1], &[90]), None);
    assert_eq!(useful(b"text", &[90]), None);
}
