// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A hostile client's virtual memory: it can access its own memory, or none.

use gpgpu_protocol::{
    api::{Physical, Request, Stream, object_id, request},
    cuda::*,
};

use crate::{
    client::Client,
    host::{Host, on_gpu},
    vmm,
};

const PIECE: u64 = 2 << 20;
const TIB: u64 = 1 << 40;
const READ_WRITE: u32 = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

/// The requests of the tests.
trait Asks {
    fn code<R: Request>(&mut self, request: R) -> CUresult;
    fn reserve(&mut self, bytes: u64) -> Result<u64, CUresult>;
}

impl Asks for Client<'_> {
    fn code<R: Request>(&mut self, request: R) -> CUresult {
        self.call(&request, 0, &[], 0).0
    }

    fn reserve(&mut self, bytes: u64) -> Result<u64, CUresult> {
        let reserve = request::cuMemAddressReserve {
            ptr: true,
            size: bytes as usize,
            alignment: 0,
            addr: 0,
        };
        let (code, said) = self.call(&reserve, 0, &[], 0);
        said.map(|(reply, _)| reply.ptr).ok_or(code)
    }
}

fn create(handle: u64, bytes: u64) -> request::cuMemCreate {
    request::cuMemCreate {
        handle,
        size: bytes as usize,
        dev: 0,
    }
}

fn map(ptr: u64, bytes: u64, handle: u64) -> request::cuMemMap {
    request::cuMemMap {
        ptr,
        size: bytes as usize,
        offset: 0,
        handle,
        dev: true,
    }
}

fn unmap(ptr: u64, bytes: u64) -> request::cuMemUnmap {
    let size = bytes as usize;
    request::cuMemUnmap { ptr, size }
}

fn access(ptr: u64, bytes: u64, dev: i32, flags: u32) -> request::cuMemSetAccess {
    let size = bytes as usize;
    request::cuMemSetAccess {
        ptr,
        size,
        dev,
        flags,
    }
}

fn free(ptr: u64, bytes: u64) -> request::cuMemAddressFree {
    let size = bytes as usize;
    request::cuMemAddressFree { ptr, size }
}

fn release(handle: u64) -> request::cuMemRelease {
    request::cuMemRelease { handle }
}

fn fill(dst: u64, bytes: u64) -> request::cuMemsetD8_v2 {
    request::cuMemsetD8_v2 {
        dstDevice: dst,
        uc: 1,
        N: bytes as usize,
    }
}

/// The id of a client's physical memory.
fn id(serial: u64) -> u64 {
    object_id::<Physical>(serial)
}

/// Lets a client attack another VM's client. It gets the address of the other's memory, whose id is `id(77)`. The
/// memory must not change, and a neighbour must continue.
fn beside_a_victim(attack: impl FnOnce(&mut Client<'_>, u64)) {
    let Some(host) = Host::start() else { return };
    let neighbour = host.neighbour();
    let mut guests = [host.boot(0, vmm()), host.boot(1, vmm())];
    let [one, other] = &mut guests;
    let (mut victim, mut client) = (Client::open(other), Client::open(one));
    let theirs = victim.reserve(8 * PIECE).unwrap();
    assert_eq!(victim.code(create(id(77), PIECE)), CUDA_SUCCESS);
    assert_eq!(victim.code(map(theirs, PIECE, id(77))), CUDA_SUCCESS);
    let open = access(theirs, PIECE, 0, READ_WRITE);
    assert_eq!(victim.code(open), CUDA_SUCCESS);
    let theirs_context = victim.context();
    victim.works(&fill(theirs, PIECE), theirs_context, &[], 0);

    attack(&mut client, theirs);

    let copy = request::gpgpuCopyOut {
        src: theirs,
        hStream: 0,
    };
    let (_, data) = victim.works(&copy, theirs_context, &[], 4096);
    assert!(data.iter().all(|byte| *byte == 1));
    victim.close();
    client.close();
    neighbour.finish();
}

/// Addresses of another client, of the worker itself, or of no memory.
#[test]
fn pitfall_63_a_client_reaches_no_address_that_it_has_not_reserved() {
    beside_a_victim(|client, theirs| {
        let context = client.context();
        let chunk = client.alloc(PIECE as usize, context);
        let large = client.alloc(48 << 20, context);
        assert_eq!(client.code(create(id(1), PIECE)), CUDA_SUCCESS);
        for wrong in [
            theirs,
            chunk & !(PIECE - 1),
            large,
            large + (48 << 20),
            PIECE,
            0,
            !0 - PIECE + 1,
            1 << 46,
        ] {
            assert_eq!(
                client.code(map(wrong, PIECE, id(1))),
                CUDA_ERROR_INVALID_VALUE,
                "{wrong:#x}"
            );
            assert_eq!(
                client.code(unmap(wrong, PIECE)),
                CUDA_ERROR_INVALID_VALUE,
                "{wrong:#x}"
            );
            assert_eq!(
                client.code(free(wrong, PIECE)),
                CUDA_ERROR_INVALID_VALUE,
                "{wrong:#x}"
            );
            let closed = access(wrong, PIECE, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
            assert_eq!(client.code(closed), CUDA_ERROR_INVALID_VALUE, "{wrong:#x}");
            let retain = request::cuMemRetainAllocationHandle {
                handle: true,
                addr: wrong,
            };
            assert_eq!(client.code(retain), CUDA_ERROR_INVALID_VALUE, "{wrong:#x}");
        }
        // Once reserved, the other's addresses are this client's, and do not contain the other's mappings. The
        // addresses may well be equal.
        let own = client.reserve(8 * PIECE).unwrap();
        let (code, _) = client.call(&fill(own, 4), context, &[], 0);
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
    });
}

/// Ids of another client, of other objects, or invalid ones; sizes and devices that do not exist.
#[test]
fn pitfall_63_memory_has_an_id_of_its_own_client_a_size_and_a_device() {
    beside_a_victim(|client, _| {
        assert_eq!(client.code(create(id(1), PIECE)), CUDA_SUCCESS);
        let own = client.reserve(8 * PIECE).unwrap();
        for wrong in [
            id(77),
            id(2),
            0,
            !0,
            id(1) + 1,
            object_id::<Stream>(1),
            id(1 << 50),
        ] {
            assert_eq!(
                client.code(map(own, PIECE, wrong)),
                CUDA_ERROR_INVALID_VALUE,
                "{wrong:#x}"
            );
            assert_eq!(
                client.code(release(wrong)),
                CUDA_ERROR_INVALID_VALUE,
                "{wrong:#x}"
            );
        }
        for wrong in [id(1), 0, !0, object_id::<Stream>(5), 1 << 56 | id(5)] {
            assert_eq!(
                client.code(create(wrong, PIECE)),
                CUDA_ERROR_INVALID_VALUE,
                "{wrong:#x}"
            );
        }
        for bytes in [0, 1, PIECE - 1, PIECE + 1, !0, !0 - PIECE + 2] {
            assert_eq!(
                client.code(create(id(3), bytes)),
                CUDA_ERROR_INVALID_VALUE,
                "{bytes:#x}"
            );
            assert_eq!(
                client.reserve(bytes),
                Err(CUDA_ERROR_INVALID_VALUE),
                "{bytes:#x}"
            );
        }
        for (bytes, dev, code) in [
            (!0 - PIECE + 1, 0, CUDA_ERROR_OUT_OF_MEMORY),
            (1 << 45, 0, CUDA_ERROR_OUT_OF_MEMORY),
            (PIECE, 1000, CUDA_ERROR_INVALID_DEVICE),
            (PIECE, -1, CUDA_ERROR_INVALID_DEVICE),
            (PIECE, i32::MIN, CUDA_ERROR_INVALID_DEVICE),
        ] {
            let create = request::cuMemCreate {
                dev,
                ..create(id(3), bytes)
            };
            assert_eq!(client.code(create), code, "{bytes:#x} on {dev}");
        }
    });
}

/// Lengths beyond the end of the memory, of the reservation and of the address space.
#[test]
fn pitfall_63_memory_is_mapped_and_used_within_a_reservation() {
    beside_a_victim(|client, _| {
        let context = client.context();
        assert_eq!(client.code(create(id(1), PIECE)), CUDA_SUCCESS);
        let all = 8 * PIECE;
        let own = client.reserve(all).unwrap();
        assert_eq!(client.code(create(id(4), 4 * PIECE)), CUDA_SUCCESS);
        for (at, bytes) in [
            (own, 0),
            (own, 2 * PIECE),
            (own, !0 - PIECE + 1),
            (own + all - PIECE, 4 * PIECE),
            (own + 1, PIECE),
            (own, PIECE + 1),
            (own - PIECE, PIECE),
            (own + all, PIECE),
        ] {
            let (memory, whole) = match bytes == 4 * PIECE {
                true => (id(4), 4 * PIECE),
                false => (id(1), PIECE),
            };
            // Memory is only mapped as a whole.
            let code = match bytes {
                0 => CUDA_ERROR_INVALID_VALUE,
                bytes if bytes != whole => CUDA_ERROR_NOT_SUPPORTED,
                _ => CUDA_ERROR_INVALID_VALUE,
            };
            assert_eq!(
                client.code(map(at, bytes, memory)),
                code,
                "{at:#x} {bytes:#x}"
            );
        }
        for offset in [1, PIECE as usize, usize::MAX, 1 << 63] {
            let map = request::cuMemMap {
                offset,
                ..map(own, PIECE, id(4))
            };
            assert_eq!(client.code(map), CUDA_ERROR_NOT_SUPPORTED, "{offset:#x}");
        }
        assert_eq!(client.code(map(own, 4 * PIECE, id(4))), CUDA_SUCCESS);
        for (at, bytes) in [
            (own, PIECE),
            (own + PIECE, 3 * PIECE),
            (own, all + PIECE),
            (own, !0),
            (own, !0 - PIECE + 1),
        ] {
            assert_eq!(
                client.code(unmap(at, bytes)),
                CUDA_ERROR_INVALID_VALUE,
                "{at:#x} {bytes:#x}"
            );
            assert_eq!(
                client.code(access(at, bytes, 0, READ_WRITE)),
                CUDA_ERROR_INVALID_VALUE
            );
        }
        for (dev, flags, code) in [
            (0, 2, CUDA_ERROR_INVALID_VALUE),
            (0, u32::MAX, CUDA_ERROR_INVALID_VALUE),
            (63, READ_WRITE, CUDA_ERROR_INVALID_DEVICE),
            (64, READ_WRITE, CUDA_ERROR_INVALID_DEVICE),
            (-1, READ_WRITE, CUDA_ERROR_INVALID_DEVICE),
        ] {
            assert_eq!(
                client.code(access(own, 4 * PIECE, dev, flags)),
                code,
                "{dev} {flags}"
            );
        }
        assert_eq!(
            client.code(access(own, 4 * PIECE, 0, READ_WRITE)),
            CUDA_SUCCESS
        );
        client.works(&fill(own, 4 * PIECE), context, &[], 0);
        for (at, bytes) in [
            (own, 4 * PIECE + 1),
            (own + 4 * PIECE, 1),
            (own, !0),
            (own + 1, !0 - own),
        ] {
            let (code, _) = client.call(&fill(at, bytes), context, &[], 0);
            assert_eq!(code, CUDA_ERROR_INVALID_VALUE, "{at:#x} {bytes:#x}");
        }
    });
}

/// A reference is released only once, and mapped memory continues to exist.
#[test]
fn pitfall_63_mapped_memory_outlives_its_reference() {
    beside_a_victim(|client, _| {
        let context = client.context();
        let all = 8 * PIECE;
        let own = client.reserve(all).unwrap();
        assert_eq!(client.code(create(id(4), 4 * PIECE)), CUDA_SUCCESS);
        assert_eq!(client.code(map(own, 4 * PIECE, id(4))), CUDA_SUCCESS);
        let open = access(own, 4 * PIECE, 0, READ_WRITE);
        assert_eq!(client.code(open), CUDA_SUCCESS);
        assert_eq!(client.code(release(id(4))), CUDA_SUCCESS);
        assert_eq!(client.code(release(id(4))), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(client.code(create(id(4), PIECE)), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(
            client.code(map(own + 4 * PIECE, 4 * PIECE, id(4))),
            CUDA_ERROR_INVALID_VALUE
        );
        client.works(&fill(own, 4 * PIECE), context, &[], 0);
        assert_eq!(client.code(free(own, all)), CUDA_ERROR_INVALID_VALUE);
        // Including the hole after it; then there is nothing to unmap.
        assert_eq!(client.code(unmap(own, all)), CUDA_SUCCESS);
        assert_eq!(client.code(unmap(own, 4 * PIECE)), CUDA_SUCCESS);
        assert_eq!(client.code(free(own, all)), CUDA_SUCCESS);
        assert_eq!(client.code(free(own, all)), CUDA_ERROR_INVALID_VALUE);
    });
}

/// An unlimited number of reservations, physical memory and mappings: they are limited, and the client continues.
#[test]
fn pitfall_73_reservations_and_mappings_of_a_client_are_bounded() {
    let Some(host) = Host::start() else { return };
    let neighbour = host.neighbour();
    let mut guest = host.boot(0, vmm());
    let mut client = Client::open(&mut guest);
    // Limited by length: reservations lie in windows of a few tebibytes.
    let mut long = Vec::new();
    while let Ok(start) = client.reserve(TIB) {
        long.push(start);
        assert!(long.len() <= 16, "{} TiB are reserved", long.len());
    }
    assert_eq!(client.reserve(TIB), Err(CUDA_ERROR_OUT_OF_MEMORY));
    assert_eq!(client.reserve(1 << 47), Err(CUDA_ERROR_OUT_OF_MEMORY));
    for start in long.drain(..) {
        assert_eq!(client.code(free(start, TIB)), CUDA_SUCCESS);
    }
    // Limited by number.
    let mut all = Vec::new();
    let code = loop {
        match client.reserve(PIECE) {
            Ok(start) => all.push(start),
            Err(code) => break code,
        }
        assert!(all.len() <= 16 << 10, "{} are reserved", all.len());
    };
    assert_eq!((code, all.len()), (CUDA_ERROR_OUT_OF_MEMORY, 16 << 10));
    // Mapping the same memory everywhere takes no memory, but entries in tables. Those are limited too, elsewhere.
    let id = object_id::<Physical>(1);
    assert_eq!(client.code(create(id, PIECE)), CUDA_SUCCESS);
    for start in all.iter().take(if on_gpu() { 4096 } else { 256 }) {
        assert_eq!(client.code(map(*start, PIECE, id)), CUDA_SUCCESS);
    }
    assert_eq!(client.code(free(all[16_383], PIECE)), CUDA_SUCCESS);
    assert!(client.reserve(PIECE).is_ok());
    client.close();
    neighbour.finish();
}
