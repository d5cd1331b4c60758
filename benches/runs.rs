// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The cost of converting a chain's pages to runs for a mover: 16 MiB in pages of 4 KiB, in order and shuffled.

// criterion's macros generate public functions without documentation.
#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use vhost_device_gpgpu::backend::{chain::Segments, runs::resolve};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

const PAGE: u64 = 4096;
const PAGES: u64 = 4096;
const REGION: u64 = 1 << 30;

fn memory() -> GuestMemoryMmap {
    let file = tempfile::tempfile().expect("a file");
    file.set_len(REGION).expect("its length");
    let map = MmapRegion::from_file(FileOffset::new(file, 0), REGION as usize).expect("a mapping");
    let region = GuestRegionMmap::new(map, GuestAddress(0)).expect("a region");
    GuestMemoryMmap::from_regions(vec![region]).expect("memory")
}

fn runs(criterion: &mut Criterion) {
    let memory = memory();
    let mut group = criterion.benchmark_group("runs of 16 MiB");
    group.throughput(Throughput::Bytes(PAGE * PAGES));
    // Multiplication by an odd number is a permutation of the pages.
    for (name, step, expected) in [("in order", 1, 1), ("shuffled", 1_000_003, PAGES)] {
        let mut segments = Segments::default();
        for page in 0..PAGES {
            let at = page * step % PAGES * 2;
            segments.push(
                GuestAddress(if step == 1 { page } else { at } * PAGE),
                PAGE as u32,
            );
        }
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| {
                let runs = resolve(&memory, &segments, 0, PAGE * PAGES, |_| Some(0));
                assert_eq!(runs.expect("runs").len() as u64, expected);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, runs);
criterion_main!(benches);
