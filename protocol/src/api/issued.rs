// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Every operation that was ever issued, so that guests and hosts of different versions are compatible.
//!
//! A guest's library asks the host for the numbers and layouts of its operations (`gpgpuOperations`) and uses those
//! that it has too. A host without that operation refuses it, which shows that it has the operations of the first
//! table. So the meaning of a number, once issued, never changes: a test compares the table with this list.

use super::{KnownOperation, operation};

/// The family of compatible tables: a constant in the configuration space and in OPEN. Tables of one family share the
/// numbers below. It is the digest of the first table.
pub const FAMILY: u64 = 0xfaf4_3cdc_cd7b_724b;

/// The maximum number of operations in one answer to `gpgpuOperations`.
pub const KNOWN_AT_ONCE: usize = 2048;

/// An operation that was issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Issued {
    /// The first table with it, counted from 1.
    pub table: u32,
    /// Its number.
    pub op: u16,
    /// Its layout.
    pub layout: u64,
    /// Its name.
    pub name: &'static str,
}

/// The operations of this build with numbers from `first` on, as an answer to `gpgpuOperations`: at most
/// [`KNOWN_AT_ONCE`], in the order of their numbers.
pub fn known_from(first: u32) -> Vec<KnownOperation> {
    let at = BY_NUMBER.partition_point(|issued| u32::from(issued.op) < first);
    let there = BY_NUMBER[at..].iter();
    let own = there.filter(|issued| operation(issued.op).is_some());
    own.map(Numbers::known).take(KNOWN_AT_ONCE).collect()
}

/// The operations of a host that does not know `gpgpuOperations`.
pub fn first_table() -> impl Iterator<Item = KnownOperation> {
    let first = BY_NUMBER.iter().filter(|issued| issued.table == 1);
    first.map(Numbers::known)
}

/// The numbers of an operation that was issued.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    op: u16,
    table: u32,
    layout: u64,
}

impl Numbers {
    const fn known(&self) -> KnownOperation {
        KnownOperation {
            op: self.op,
            layout: self.layout,
        }
    }
}

/// All issued operations, by number. A comparison of guest and host reads this table instead of the descriptions of
/// operations, from which every process would have to compute the layouts.
static BY_NUMBER: [Numbers; ISSUED.len()] = by_number();

const fn by_number() -> [Numbers; ISSUED.len()] {
    let nothing = Numbers {
        op: 0,
        table: 0,
        layout: 0,
    };
    let mut sorted = [nothing; ISSUED.len()];
    let mut at = 0;
    while at < ISSUED.len() {
        let Issued {
            table, op, layout, ..
        } = ISSUED[at];
        // Most operations were issued in the order of their numbers.
        let mut to = at;
        while to > 0 && sorted[to - 1].op > op {
            sorted[to] = sorted[to - 1];
            to -= 1;
        }
        sorted[to] = Numbers { op, table, layout };
        at += 1;
    }
    sorted
}

/// The operations that a guest and a host share, by number.
#[derive(Debug)]
pub struct Shared(Box<[u64; 1 << 10]>);

impl Default for Shared {
    /// None.
    fn default() -> Self {
        Self(Box::new([0; 1 << 10]))
    }
}

impl Shared {
    /// Adds those of the host's operations that were issued with the same layout when this build was made.
    pub fn add(&mut self, known: impl IntoIterator<Item = KnownOperation>) {
        // The host sends them in the order of their numbers.
        let mut next = 0;
        for KnownOperation { op, layout } in known {
            let is_next = BY_NUMBER.get(next).is_some_and(|own| own.op == op);
            let at = if is_next {
                next
            } else {
                BY_NUMBER.partition_point(|own| own.op < op)
            };
            next = at + 1;
            let own = BY_NUMBER.get(at);
            if own.is_some_and(|own| own.op == op && own.layout == layout) {
                self.0[usize::from(op >> 6)] |= 1 << (op & 63);
            }
        }
    }

    /// Whether both have an operation.
    pub fn has(&self, op: u16) -> bool {
        self.0[usize::from(op >> 6)] >> (op & 63) & 1 != 0
    }
}

macro_rules! issued {
    ($($table:literal $op:literal $layout:literal $name:ident;)*) => {
        /// All operations, in the order in which they were issued. `UPDATE_ISSUED=N cargo test -p gpgpu-protocol
        /// issued` adds the new ones in table N; lines are never changed or removed.
        pub const ISSUED: &[Issued] = &[$(Issued {
            table: $table,
            op: $op,
            layout: $layout,
            name: stringify!($name),
        },)*];
    };
}

include!("issued_list.rs");

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, fmt::Write as _, fs};

    use super::{
        super::{OPERATIONS, all_operations},
        *,
    };

    /// Adds operations that were not issued yet, if the environment asks for it.
    fn update() {
        let Ok(table) = std::env::var("UPDATE_ISSUED") else {
            return;
        };
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/api/issued_list.rs");
        let there = fs::read_to_string(path).unwrap();
        let mut list = there.trim_end().strip_suffix('}').unwrap().to_owned();
        for of in all_operations() {
            if !ISSUED.iter().any(|issued| issued.op == of.op) {
                let layout = of.layout();
                let row = format!("    {table} {:#06x} {layout:#018x} {};", of.op, of.name);
                writeln!(list, "{row}").unwrap();
            }
        }
        fs::write(path, list + "}\n").unwrap();
        panic!("the list was written: run the test again");
    }

    /// GPGPU-DEV-68.
    #[test]
    fn an_issued_operation_never_changes() {
        update();
        let mut issued = HashMap::new();
        for row in ISSUED {
            assert!(
                issued.insert(row.op, row).is_none(),
                "{row:?} was issued twice"
            );
        }
        for of in all_operations() {
            let row = issued.get(&of.op);
            let row = row.unwrap_or_else(|| panic!("{} is not in issued_list.rs", of.name));
            assert_eq!(
                row.name, of.name,
                "{:#06x} was issued to another operation",
                of.op
            );
            assert_eq!(
                row.layout,
                of.layout(),
                "{} has another layout than the one that was issued; make a new operation of it",
                of.name
            );
        }
    }

    /// GPGPU-DRV-33.
    #[test]
    fn only_operations_of_equal_form_are_shared() {
        let mut shared = Shared::default();
        let [same, other] = [OPERATIONS[3], OPERATIONS[4]];
        shared.add([
            KnownOperation {
                op: same.op,
                layout: same.layout(),
            },
            KnownOperation {
                op: other.op,
                layout: other.layout() + 1,
            },
            // The host is newer.
            KnownOperation {
                op: u16::MAX,
                layout: 1,
            },
        ]);
        for of in all_operations() {
            assert_eq!(shared.has(of.op), of.op == same.op, "{}", of.name);
        }
        assert!(!shared.has(u16::MAX));
    }

    /// GPGPU-DEV-66.
    #[test]
    fn the_list_is_sent_in_parts_by_number() {
        let all = known_from(0);
        assert_eq!(all.len(), all_operations().count().min(KNOWN_AT_ONCE));
        assert!(all.is_sorted_by_key(|known| known.op));
        let second = u32::from(all[1].op);
        assert_eq!(known_from(second), all[1..]);
        assert_eq!(known_from(1 << 16), []);
    }

    #[test]
    fn a_layout_holds_the_fields_of_what_it_carries() {
        use crate::codec::{FNV, Wire};
        mod before {
            use crate::wire_struct;
            wire_struct! { pub struct Inner { pub first: u32, pub second: u64, } pub struct Outer { pub inner: Vec<Inner>, } }
        }
        mod renamed {
            use crate::wire_struct;
            wire_struct! { pub struct Inner { pub second: u32, pub first: u64, } pub struct Outer { pub inner: Vec<Inner>, } }
        }
        mod retyped {
            use crate::wire_struct;
            wire_struct! { pub struct Inner { pub first: u64, pub second: u64, } pub struct Outer { pub inner: Vec<Inner>, } }
        }
        mod longer {
            use crate::wire_struct;
            wire_struct! { pub struct Inner { pub first: u32, pub second: u64, pub third: u64, } pub struct Outer { pub inner: Vec<Inner>, } }
        }
        let hashes = [
            before::Outer::SHAPE,
            renamed::Outer::SHAPE,
            retyped::Outer::SHAPE,
            longer::Outer::SHAPE,
            <Option<before::Outer>>::SHAPE,
        ]
        .map(|shape| shape.hash(FNV));
        for (i, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..i].contains(hash), "{i}");
        }
    }
}
