// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launches that take only one command of the driver.

use std::{ffi::c_void, ptr::null_mut, sync::atomic::Ordering};

use gpgpu_protocol::cuda::*;

use super::{
    AT_ONCE, Fake, GLOBAL, HAS_ROOM, LAUNCHES, STORE, WOKEN, alone, begin, end, graph_of, kernel,
    stream, with,
};
use crate::{api, capture, exec, node::Work};

fn launch(exec: u64) {
    // SAFETY: handles are numbers, which are looked up.
    unsafe { api::cuGraphLaunch::<Fake, false>(exec as CUgraphExec, 1 as CUstream) }.unwrap();
}

/// Makes the driver accept commands without waiting, until this is dropped.
struct Room;

impl Room {
    fn new() -> Self {
        HAS_ROOM.store(true, Ordering::Relaxed);
        Self
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        HAS_ROOM.store(false, Ordering::Relaxed);
    }
}

/// The launches since the last call: those that the driver took at once, and the others.
fn taken() -> (u32, u32) {
    (
        AT_ONCE.swap(0, Ordering::Relaxed),
        LAUNCHES.swap(0, Ordering::Relaxed),
    )
}

#[test]
fn a_plain_graph_is_launched_at_once_where_the_driver_has_room() {
    let _alone = alone();
    let graph = graph_of(kernel(1));
    let exec = exec::instantiate::<Fake>(graph, 0).unwrap();
    taken();
    launch(exec);
    assert_eq!(taken(), (0, 1), "there was no room");
    let _room = Room::new();
    WOKEN.store(0, Ordering::Relaxed);
    (0..3).for_each(|_| launch(exec));
    assert_eq!(taken(), (3, 0));
    assert_eq!(WOKEN.load(Ordering::Relaxed), 1, "the driver asked once");
    // While any stream is captured, launches take the slower path, which detects a launch into a captured stream.
    begin(2, GLOBAL);
    launch(exec);
    assert_eq!(taken(), (0, 1));
    let captured = capture::end::<Fake>(&stream(2)).unwrap();
    end(exec);
    with(|inner| {
        inner.forget_graph(captured);
        inner.forget_graph(graph);
    });
    // SAFETY: as above.
    let gone = unsafe { api::cuGraphLaunch::<Fake, false>(exec as CUgraphExec, 1 as CUstream) };
    assert_eq!(gone, Err(CUDA_ERROR_INVALID_VALUE));
}

#[test]
fn a_launch_that_changes_memory_or_holds_objects_takes_the_longer_way() {
    unsafe extern "C" fn ended(_: *mut c_void) {}
    let _alone = alone();
    let allocation = STORE.allocate(0, &[], 7, 64).unwrap();
    let address = allocation.address();
    let with_memory = graph_of(Work::Alloc(allocation));
    let with_object = with(|inner| inner.create());
    let mut object = null_mut();
    // SAFETY: the pointer is to a value that lives across the calls.
    unsafe {
        api::cuUserObjectCreate::<Fake, false>(&mut object, null_mut(), Some(ended), 1, 1).unwrap();
        let graph = with_object as CUgraph;
        api::cuGraphRetainUserObject::<Fake, false>(graph, object, 1, 1).unwrap();
    }
    let _room = Room::new();
    taken();
    for graph in [with_memory, with_object] {
        let exec = exec::instantiate::<Fake>(graph, 0).unwrap();
        launch(exec);
        assert_eq!(taken(), (0, 1));
        if graph == with_memory {
            assert_eq!(STORE.free(address), Some(Ok(())));
        }
        end(exec);
        with(|inner| inner.forget_graph(graph));
    }
}
