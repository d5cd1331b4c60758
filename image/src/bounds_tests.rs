// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Images whose headers lead out of them.

use super::*;
use fatbin::FLAG_ZSTD;

fn put<const N: usize>(to: &mut [u8], at: u64, value: [u8; N]) {
    let at = at as usize;
    to[at..at + N].copy_from_slice(&value);
}

fn put_word(to: &mut [u8], class: &Class, at: u64, value: u64) {
    match class.is_long {
        true => put(to, at, value.to_le_bytes()),
        false => put(to, at, (value as u32).to_le_bytes()),
    }
}

const NAMES: &[u8] = b"\0.shstrtab\0.text.k\0.nv.global\0";
const GLOBAL: usize = 3;

/// A cubin of a class, with its tables at the end: the first section, the names, code, and a large variable; and a
/// segment of the code.
struct Cubin {
    bytes: Vec<u8>,
    class: &'static Class,
    sections: u64,
    segments: u64,
}

impl Cubin {
    fn new(class: &'static Class) -> Self {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x01\x01");
        bytes[4] = if class.is_long { 2 } else { 1 };
        bytes.extend(NAMES);
        bytes.resize(128, 7);
        let segments = bytes.len() as u64;
        let sections = segments + class.segment;
        bytes.resize((sections + 4 * class.section) as usize, 0);
        put_word(&mut bytes, class, class.segments, segments);
        put_word(&mut bytes, class, class.sections, sections);
        let counts = [class.segment as u16, 1, class.section as u16, 4, 1];
        for (at, count) in (class.counts..).step_by(2).zip(counts) {
            put(&mut bytes, at, count.to_le_bytes());
        }
        let mut cubin = Self {
            bytes,
            class,
            sections,
            segments,
        };
        cubin.segment(112, 16);
        cubin.section(1, (1, 3), (64, NAMES.len() as u64));
        cubin.section(2, (11, 1), (112, 16));
        cubin.section(GLOBAL as u64, (19, 8), (128, 1 << 20));
        cubin
    }

    fn segment(&mut self, offset: u64, size: u64) -> &mut Self {
        let (class, at) = (self.class, self.segments);
        put_word(&mut self.bytes, class, at + class.segment_offset, offset);
        put_word(&mut self.bytes, class, at + class.segment_bytes, size);
        self
    }

    fn section(&mut self, index: u64, (name, kind): (u32, u32), range: (u64, u64)) -> &mut Self {
        let (class, at) = (self.class, self.sections + index * self.class.section);
        put(&mut self.bytes, at, name.to_le_bytes());
        put(&mut self.bytes, at + 4, kind.to_le_bytes());
        put_word(&mut self.bytes, class, at + class.section_offset, range.0);
        put_word(&mut self.bytes, class, at + class.section_bytes, range.1);
        self
    }

    /// Sets one of the numbers of 16 bits.
    fn count(&mut self, index: u64, count: u16) -> &mut Self {
        let at = self.class.counts + 2 * index;
        put(&mut self.bytes, at, count.to_le_bytes());
        self
    }

    fn is_good(&self) -> bool {
        check(&self.bytes).is_ok()
    }
}

fn set(of: &mut Cubin, (index, count): (u64, u16)) {
    of.count(index, count);
}

const CLASSES: [&Class; 2] = [&LONG, &SHORT];

#[test]
fn a_whole_cubin_is_accepted_and_a_truncated_one_is_not() {
    for class in CLASSES {
        let cubin = Cubin::new(class);
        assert_eq!(check(&cubin.bytes), Ok(()));
        for length in 4..cubin.bytes.len() {
            assert!(check(&cubin.bytes[..length]).is_err(), "{length}");
        }
        let mut longer = cubin.bytes.clone();
        longer.push(0);
        assert_eq!(check(&longer), Ok(()));
    }
    for (class, header) in CLASSES.into_iter().zip([64, 52]) {
        let mut cubin = Cubin::new(class);
        put_word(&mut cubin.bytes, class, class.sections, 0);
        set(&mut cubin, (3, 0));
        set(&mut cubin, (1, 0));
        assert_eq!(check(&cubin.bytes[..header]), Ok(()), "no tables");
        assert!(check(&cubin.bytes[..header - 1]).is_err());
    }
    let mut cubin = Cubin::new(&LONG);
    for (at, value) in [(4, 0), (4, 3), (5, 2)] {
        let was = std::mem::replace(&mut cubin.bytes[at], value);
        assert!(!cubin.is_good(), "{at}: {value}");
        cubin.bytes[at] = was;
    }
}

#[test]
fn no_section_or_segment_leaves_the_image() {
    for class in CLASSES {
        let length = Cubin::new(class).bytes.len() as u64;
        let most = if class.is_long {
            u64::MAX
        } else {
            u32::MAX.into()
        };
        for (offset, size, is_good) in [
            (0, length, true),
            (length - 1, 1, true),
            (length, 0, true),
            (length - 1, 2, false),
            (length, 1, false),
            (1, length, false),
            (0, most, false),
            (1, most, false),
            (most, 1, false),
            (most, most, false),
        ] {
            let range = (offset, size);
            let segment = Cubin::new(class).segment(offset, size).is_good();
            assert_eq!(segment, is_good, "{range:?}");
            // Code, a table of symbols, and NVIDIA's kinds.
            for kind in [0, 1, 2, 0x7000_0000, 0x7000_0008, 0x7000_0064, 77] {
                let code = Cubin::new(class).section(2, (11, kind), range).is_good();
                assert_eq!(code, is_good, "{kind}: {range:?}");
                let first = Cubin::new(class).section(0, (0, kind), range).is_good();
                assert_eq!(first, is_good || kind == 0, "{kind}: {range:?}");
            }
            for kind in WITHOUT_BYTES {
                let variable = (GLOBAL as u64, (19, kind));
                let mut cubin = Cubin::new(class);
                assert!(cubin.section(variable.0, variable.1, range).is_good());
            }
        }
    }
}

#[test]
fn tables_of_headers_lie_in_the_image() {
    for class in CLASSES {
        let with = |change: &dyn Fn(&mut Cubin)| {
            let mut cubin = Cubin::new(class);
            change(&mut cubin);
            cubin.is_good()
        };
        let table = |at: u64, value: u64| with(&|of| put_word(&mut of.bytes, class, at, value));
        let most = if class.is_long {
            u64::MAX
        } else {
            u32::MAX.into()
        };
        for at in [class.sections, class.segments] {
            assert!(!table(at, 0), "headers without a table");
            assert!(!table(at, most) && !table(at, most - 63));
            assert!(!table(at, Cubin::new(class).bytes.len() as u64 - 1));
        }
        for size in [0, 31, 41, 63, 65] {
            assert!(!with(&|of| set(of, (0, size))), "{size}");
            assert!(!with(&|of| set(of, (2, size))), "{size}");
        }
        for (index, count) in [
            (1, 2000),
            (1, 0xffff),
            (3, 5),
            (3, 0xffff),
            (4, 4),
            (4, 0xfffe),
        ] {
            assert!(!with(&|of| set(of, (index, count))), "{index}: {count}");
        }
        assert!(with(&|of| set(of, (1, 0))), "no segments");
        // The number of sections, and the index of that with the names, are in the first header.
        for (sections, names, is_good) in [
            (4, 1, true),
            (1, 1, true),
            (5, 1, false),
            (most, 1, false),
            (4, 4, false),
            (4, u32::MAX, false),
        ] {
            let first = |of: &mut Cubin| {
                of.count(3, 0).count(4, SHN_XINDEX);
                of.section(0, (0, 0), (0, sections));
                let link = of.sections + class.section_link;
                put(&mut of.bytes, link, names.to_le_bytes());
            };
            assert_eq!(
                with(&first),
                is_good,
                "{sections} sections, names in {names}"
            );
        }
    }
}

#[test]
fn names_of_sections_end_in_the_image() {
    for class in CLASSES {
        let end = NAMES.len() as u32;
        let named = |name| Cubin::new(class).section(2, (name, 1), (112, 16)).is_good();
        assert!(named(0) && named(end - 1));
        assert!(!named(end) && !named(u32::MAX));
        let names = |range| Cubin::new(class).section(1, (1, 3), range).is_good();
        assert!(!names((64, NAMES.len() as u64 - 1)), "no NUL at the end");
        assert!(!names((64, 1 << 20)));
        assert!(!names((u32::MAX.into(), 0)), "no names");
        assert!(!Cubin::new(class).count(4, 0).is_good(), "no names");
    }
}

/// An entry of a container: its kind, its flags, the size of its compressed bytes, and its payload.
fn entry(kind: u16, flags: u64, compressed: u32, payload: &[u8]) -> Vec<u8> {
    let mut entry = vec![0; 64];
    put(&mut entry, 0, kind.to_le_bytes());
    put(&mut entry, 4, 64_u32.to_le_bytes());
    put(&mut entry, 8, (payload.len() as u64).to_le_bytes());
    put(&mut entry, 16, compressed.to_le_bytes());
    put(&mut entry, 28, 90_u32.to_le_bytes());
    put(&mut entry, 40, flags.to_le_bytes());
    entry.extend(payload);
    entry
}

fn container(entries: &[Vec<u8>]) -> Vec<u8> {
    let all = entries.concat();
    let mut whole = CONTAINER_MAGIC.to_le_bytes().to_vec();
    whole.extend([1, 0, 16, 0]);
    whole.extend((all.len() as u64).to_le_bytes());
    whole.extend(all);
    whole
}

#[test]
fn entries_of_a_fatbin_lie_in_it_and_in_themselves() {
    let good = Cubin::new(&LONG).bytes;
    let bad = Cubin::new(&LONG).segment(0, 1 << 20).bytes.clone();
    let text = entry(1, 0x11, 0, b".version 8.0");
    let packed = entry(2, FLAG_ZSTD, 9, b"not a frame at all");
    let whole = container(&[text.clone(), entry(2, 0x11, 0, &good), packed.clone()]);
    assert_eq!(check(&whole), Ok(()));
    for length in 4..whole.len() {
        assert!(check(&whole[..length]).is_err(), "{length}");
    }
    // What follows the image in memory must not complete an entry's cubin.
    let mut followed = container(&[entry(2, 0x11, 0, &good[..good.len() - 8])]);
    followed.extend(&good[good.len() - 8..]);
    assert!(check(&followed).is_err());
    // Whatever an entry says of itself, it may be read as a cubin.
    for (kind, flags) in [(2, 0x11), (8, 0x11), (64, 0), (1, 0), (2, FLAG_ZSTD)] {
        let of = |cubin: &[u8]| check(&container(&[text.clone(), entry(kind, flags, 0, cubin)]));
        assert_eq!(of(&good), Ok(()), "{kind}");
        assert!(of(&bad).is_err(), "{kind}");
    }
    // Other forms are the driver's concern.
    let other = entry(8, 0x11, 0, b"\xedCN\x7f and so on");
    assert_eq!(check(&container(&[other, packed])), Ok(()));
    let long = entry(2, FLAG_ZSTD, 100, b"not a frame at all");
    assert!(check(&container(&[long])).is_err());
}

#[test]
fn a_fatbin_does_not_end_behind_the_image() {
    let text = || entry(1, 0x11, 0, b".version 8.0");
    let mut whole = container(&[text()]);
    let bytes = whole.len() as u64 - 16;
    for (more, is_good) in [
        (0, true),
        (1, false),
        (63, false),
        (64, false),
        (1 << 40, false),
    ] {
        put(&mut whole, 8, (bytes + more).to_le_bytes());
        assert_eq!(check(&whole).is_ok(), is_good, "{more}");
    }
    // A reader may take the last bytes for one more entry.
    put(&mut whole, 8, (bytes + 8).to_le_bytes());
    whole.extend([0; 63]);
    assert!(check(&whole).is_err());
    whole.push(0);
    assert!(check(&whole).is_ok());
    for size in [0_u16, 8, 24, 0xffff] {
        put(&mut whole, 6, size.to_le_bytes());
        assert!(check(&whole).is_err(), "{size}");
    }
    // The strings of an entry: the options and the name.
    for (at, value, is_good) in [
        (20, 64, true),
        (20, 1 << 20, false),
        (36, 5, true),
        (32, 77, false),
    ] {
        let mut entry = text();
        put(&mut entry, at, (value as u32).to_le_bytes());
        assert_eq!(
            check(&container(&[entry])).is_ok(),
            is_good,
            "{at}: {value}"
        );
    }
    assert_eq!(check(b"fat"), Ok(()), "text");
    assert_eq!(check(b""), Ok(()));
}
