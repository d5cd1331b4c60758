// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The cost of encoding and decoding a launch, without transport.

// criterion's macros generate public functions without documentation.
#![allow(missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use gpgpu_protocol::{
    api::{LaunchConfig, request},
    codec::{Blob, Reader, Wire, Writer},
};

fn launch() -> request::cuLaunchKernelEx {
    request::cuLaunchKernelEx {
        func: 0x0400_0000_0000_0007,
        config: LaunchConfig {
            grid_x: 128,
            grid_y: 1,
            grid_z: 1,
            block_x: 256,
            block_y: 1,
            block_z: 1,
            shared_bytes: 0,
            stream: 3,
            attributes: Vec::new(),
        },
        params: Blob(vec![7; 28]),
    }
}

fn codec(criterion: &mut Criterion) {
    let request = launch();
    let mut kept = Vec::new();
    criterion.bench_function("launch: encode into a kept buffer", |bencher| {
        bencher.iter(|| {
            kept.clear();
            let mut writer = Writer::on(std::mem::take(&mut kept));
            black_box(&request).put(&mut writer);
            kept = writer.into_bytes();
            kept.len()
        });
    });
    let mut writer = Writer::new();
    request.put(&mut writer);
    let bytes = writer.into_bytes();
    criterion.bench_function("launch: decode", |bencher| {
        bencher.iter(|| {
            let mut reader = Reader::new(black_box(&bytes));
            let request: request::cuLaunchKernelEx = reader.get().expect("a launch");
            assert_eq!(request.params.0.len(), 28);
            request.func
        });
    });
}

criterion_group!(benches, codec);
criterion_main!(benches);
