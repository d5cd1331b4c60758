// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tests of the detection of kernels that may print.

use super::*;

fn names(prints: &Prints) -> Vec<&str> {
    match prints {
        Prints::Kernels(kernels) => {
            let text = kernels.iter().map(|name| std::str::from_utf8(name));
            text.map(Result::unwrap).collect()
        }
        Prints::Any => vec!["*"],
    }
}

/// A container with these entries: kind, compute capability, bytes.
fn container(entries: &[(u16, u32, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, arch, bytes) in entries {
        let mut head = [0; 64];
        head[..2].copy_from_slice(&kind.to_le_bytes());
        head[4..8].copy_from_slice(&64_u32.to_le_bytes());
        head[8..16].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        head[28..32].copy_from_slice(&arch.to_le_bytes());
        body.extend(head);
        body.extend(*bytes);
    }
    let mut whole = fatbin::CONTAINER_MAGIC.to_le_bytes().to_vec();
    whole.extend([1, 0, 16, 0]);
    whole.extend((body.len() as u64).to_le_bytes());
    whole.extend(body);
    whole
}

/// A cubin with these symbols (a name, whether it is a kernel, whether its code is present) and these pairs of its call
/// graph.
fn cubin(symbols: &[(&str, bool, bool)], pairs: &[(u32, i32)]) -> Vec<u8> {
    let (mut table, mut text) = (vec![0_u8; 24], vec![0_u8]);
    for (name, is_kernel, has_code) in symbols {
        table.extend((text.len() as u32).to_le_bytes());
        table.extend([0x12, if *is_kernel { 0x10 } else { 0 }]);
        table.extend(u16::from(*has_code).to_le_bytes());
        table.extend([0; 16]);
        text.extend(name.as_bytes());
        text.push(0);
    }
    let graph: Vec<u8> = pairs
        .iter()
        .flat_map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()].concat())
        .collect();
    let mut elf = vec![0; 64];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    elf[40..48].copy_from_slice(&64_u64.to_le_bytes());
    elf[58..60].copy_from_slice(&64_u16.to_le_bytes());
    elf[60..62].copy_from_slice(&4_u16.to_le_bytes());
    elf[62..64].copy_from_slice(&1_u16.to_le_bytes());
    let mut at = 64 * 5;
    let parts = [
        (0_u32, Vec::new()),
        (3, text),
        (2, table),
        (0x7000_0001, graph),
    ];
    for (kind, bytes) in &parts {
        let mut header = [0; 64];
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        header[40..44].copy_from_slice(&1_u32.to_le_bytes());
        at += bytes.len();
        elf.extend(header);
    }
    parts.iter().for_each(|(_, bytes)| elf.extend(bytes));
    elf
}

const SYMBOLS: [(&str, bool, bool); 8] = [
    ("vprintf", false, false),
    ("loud", true, true),
    ("through", true, true),
    ("inner", false, true),
    ("quiet", true, true),
    ("malloc", false, false),
    ("allocates", true, true),
    ("indirect", true, true),
];

#[test]
fn of_a_cubin_those_kernels_print_that_reach_printf() {
    let of = |pairs: &[(u32, i32)]| Prints::of(&cubin(&SYMBOLS, pairs), &[90]);
    let calls = [(0, -1), (2, 1), (3, 4), (4, 1), (7, 6)];
    let prints = of(&calls);
    assert_eq!(names(&prints), ["loud", "through"]);
    assert!(prints.any() && prints.kernel(b"loud") && !prints.kernel(b"quiet"));
    // A function calls through an address, and no address of a printing function is taken.
    let by_address = [&calls[..], &[(0, -2), (5, 0), (0, -3), (8, 0)]].concat();
    assert_eq!(names(&of(&by_address)), ["loud", "through"]);
    let taken = [&calls[..], &[(0, -2), (4, 0), (0, -3), (8, 0)]].concat();
    assert_eq!(names(&of(&taken)), ["indirect", "loud", "through"]);
    // Functions that call each other.
    assert_eq!(names(&of(&[(0, -1), (2, 4), (4, 4), (4, 2)])), [""; 0]);
    assert!(!of(&[(0, -1), (7, 6)]).any());
}

#[test]
fn any_kernel_of_an_unknown_cubin_may_print() {
    let any = |image: &[u8]| assert_eq!(Prints::of(image, &[90]), Prints::Any);
    any(&cubin(&SYMBOLS, &[(0, -5), (2, 1)]));
    any(&cubin(&SYMBOLS, &[(2, 1)]));
    // An unknown kind of call counts only if there is such a call.
    assert!(!Prints::of(&cubin(&SYMBOLS, &[(0, -1), (0, -4)]), &[90]).any());
    let whole = cubin(&SYMBOLS, &[(0, -1), (2, 1)]);
    let without_calls = [&whole[..64 * 4 + 4], &[1, 0, 0, 0], &whole[64 * 4 + 8..]].concat();
    any(&without_calls);
    // A truncated image ends somewhere in the part that is parsed.
    let end = whole.len();
    any(&whole[..end - 1]);
    any(&[&whole[..40], &[0xff; 8], &whole[48..]].concat());
    // An unknown function may launch a kernel that prints.
    let launches = [("cudaLaunchDevice", false, false), ("vprintf", true, true)];
    let prints = Prints::of(&cubin(&launches, &[(0, -1), (2, 1)]), &[90]);
    assert_eq!(names(&prints), ["vprintf"]);
    let named: Vec<_> = (0..600).map(|n| format!("{n:0200}")).collect();
    let mut many: Vec<_> = named.iter().map(|n| (n.as_str(), true, true)).collect();
    many.push(("vprintf", false, false));
    let pairs: Vec<_> = (1..=600).map(|n| (n, 601)).collect();
    any(&cubin(&many, &[&[(0, -1)], &pairs[..]].concat()));
}

const TEXT: &str = "
    .version 8.0
    .target sm_80
    .extern .func (.param .b32 retval) vprintf (.param .b64 a, .param .b64 b);
    .extern .func (.param .b64 retval) malloc (.param .b64 a);
    .func inner (.param .b32 a);
    .visible .global .u64 table = inner;
    .visible .global .align 8 .b8 words[2] = {1, 2};
    .func inner (.param .b32 a) { { call.uni (retval0), vprintf, (x, y); } ret; }
    .func (.param .b32 r) square (.param .b32 a) { mul.lo.s32 %r1, %r2, %r2; ret; }
    .visible .entry loud (.param .u64 p) .maxntid 32, 1, 1 { call vprintf, (a, b); }
    .entry through() { { call.uni inner, (a); } }
    .entry quiet() { call.uni (r), square, (a); /* vprintf */ }
    .entry allocates() { call (r), malloc, (a); }
    .entry takes() { mov.u64 %rd1, inner; st.global.u64 [p], %rd1; }
    .entry indirect() { ld.global.u64 %rd1, [table];
        proto : .callprototype ()_ (.param .b32 _); call %rd1, (a), proto; }
";

#[test]
fn of_text_those_kernels_print_that_reach_printf() {
    let prints = Prints::of(TEXT.as_bytes(), &[90]);
    assert_eq!(names(&prints), ["indirect", "loud", "takes", "through"]);
    let silent = TEXT.replace("vprintf", "malloc");
    assert!(!Prints::of(silent.as_bytes(), &[90]).any());
    // The last two contain functions that may print under other names.
    for more in [
        "#define x",
        ".func f() { } .alias g, f;",
        "p : .callprototype ()_ ();",
        "}",
        "/*",
        ".func (",
    ] {
        let text = format!("{TEXT}{more}");
        assert_eq!(Prints::of(text.as_bytes(), &[90]), Prints::Any, "{more}");
    }
}

#[test]
fn of_a_container_the_entries_count_that_a_device_runs() {
    let loud = |name| format!(".extern .func vprintf (); .entry {name}() {{ call vprintf; }}");
    let (one, two) = (loud("one"), loud("two"));
    let silent = ".entry one() { } // no print".to_string();
    let image = container(&[
        (1, 80, one.as_bytes()),
        (2, 90, silent.as_bytes()),
        (1, 90, two.as_bytes()),
        (2, 86, one.as_bytes()),
    ]);
    assert!(
        !Prints::of(&image, &[90]).any(),
        "its own machine code is silent"
    );
    assert_eq!(
        names(&Prints::of(&image, &[100])),
        ["one", "two"],
        "its text is compiled"
    );
    assert_eq!(names(&Prints::of(&image, &[90, 86])), ["one"]);
    let broken = &image[..image.len() - one.len() - 1];
    assert_eq!(
        Prints::of(broken, &[90]),
        Prints::Any,
        "the last entry is no whole one"
    );
}
