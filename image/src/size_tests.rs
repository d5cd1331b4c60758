//! What images take.

use super::*;

const MIB: u64 = 1 << 20;

fn ptx(body: &str) -> Result<u64, Broken> {
    ptx::variables(format!(".version 8.0\n.target sm_80\n.address_size 64\n{body}\n").as_bytes())
}

#[test]
fn variables_of_ptx_count_as_they_are_declared() {
    let is = |body: &str, bytes: u64| {
        let found = ptx(body).unwrap();
        assert!(found >= bytes && found <= bytes + 128, "{body}: {found}");
    };
    is(".global .align 4 .b8 x[1048576];", MIB);
    is(".visible .global .align 16 .v4 .f32 x[0x10000];", MIB);
    is(".global .u64 x[256][512];", MIB);
    is(".const .b32 c[1024];", 4096);
    is(".global .b32 a[1024], b[1024];", 8192);
    is(
        ".global .align 1 .b8 text[4] = {1, 2, 3, 4}; .global .f64 y;",
        12,
    );
    is(".global .align 4096 .b8 x;", 4096);
    is(".global .u32 x<8>;", 32);
    is(
        "// .global .b8 x[1048576];\n/* .global .b8 y[1048576]; */",
        0,
    );
    is(
        ".visible .entry k(.param .u64 .ptr .global .align 4 p) { ld.global.u32 %r1, [%rd1]; ret; }",
        0,
    );
    is(".extern .global .b8 x[4096];", 4096);
    // As many elements as are written.
    assert!(ptx(".global .u64 x[] = {1,2,3,4,5,6,7,8};").unwrap() >= 64);
}

#[test]
fn pitfall_67_a_size_that_is_no_number_is_not_guessed() {
    for body in [
        ".global .b8 x[1<<30];",
        ".global .b8 x[(1024)];",
        ".global .b8 x[SIZE];",
        "#define SIZE 5\n",
        ".global .b8 x[99999999999999999999];",
    ] {
        assert!(ptx(body).is_err(), "{body}");
    }
    // What overflows is as much as can be.
    let all = ptx(".global .b64 x[4294967295][4294967295][4294967295];").unwrap();
    assert_eq!(all, u64::MAX);
}

/// A cubin of such sections: whether each is loaded, and its bytes.
fn elf(sections: &[(bool, u64)]) -> Vec<u8> {
    let mut elf = vec![0; 64];
    elf[..4].copy_from_slice(b"\x7fELF");
    elf[4] = 2;
    elf[40..48].copy_from_slice(&64_u64.to_le_bytes());
    elf[58..60].copy_from_slice(&64_u16.to_le_bytes());
    elf[60..62].copy_from_slice(&(sections.len() as u16).to_le_bytes());
    for (is_loaded, bytes) in sections {
        let mut header = vec![0; 64];
        header[8] = if *is_loaded { 2 } else { 0 };
        header[32..40].copy_from_slice(&bytes.to_le_bytes());
        elf.extend(header);
    }
    elf
}

#[test]
fn sections_of_a_cubin_count_if_they_are_loaded() {
    let image = elf(&[(false, 0), (true, 100 * MIB), (false, 5 * MIB), (true, 1)]);
    assert_eq!(device_bytes(&image, 90), Ok(100 * MIB + UNIT + OVERHEAD));
    // The last header's end says nothing of interest.
    for length in 4..image.len() - 24 {
        assert!(device_bytes(&image[..length], 90).is_err());
    }
    let mut endless = image.clone();
    endless[58..60].fill(0);
    assert!(device_bytes(&endless, 90).is_err(), "headers of no size");
    let absurd = elf(&[(true, u64::MAX), (true, u64::MAX)]);
    assert_eq!(device_bytes(&absurd, 90), Ok(u64::MAX));
}

/// A container of such entries: kind, architecture, contents.
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

#[test]
fn of_a_fatbin_the_largest_counts_that_the_device_runs() {
    let (small, large, huge) = (
        elf(&[(true, 3 * MIB)]),
        elf(&[(true, 7 * MIB)]),
        elf(&[(true, 100 * MIB)]),
    );
    let text = b".version 8.0\n.target sm_80\n.global .b8 x[9437184];\n";
    let image = container(&[
        (2, 80, &small),
        (2, 90, &large),
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
