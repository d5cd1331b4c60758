// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Connections of VMMs and guest libraries that are accepted or refused.

use gpgpu_protocol::{
    api,
    layout::{
        CONTROL_QUEUE, Config, MAX_ANSWER_BYTES, MAX_DATA_BYTES, MAX_STREAM_BYTES, OpenAnswer,
        VERSION, status,
    },
};
use vhost::vhost_user::VhostUserFrontend;
use vm_memory::{Bytes, GuestAddress};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    guest::{Guest, Vmm},
    host::{Host, echoes},
    worker::{ECHO, TOUCH},
};

/// QEMU reads the whole configuration space for every byte that its guest reads.
/// GPGPU-DEV-1, GPGPU-DEV-6.
#[test]
fn a_vm_of_qemu() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    for _ in 0..16 {
        let config = Config::read_from_bytes(&guest.config(0, 64)).unwrap();
        assert_ne!(config.instance.get(), 0);
        assert_eq!(config.of_instance(0), Config::current());
    }
    let client = guest.open();
    echoes(&mut guest, client);
    let big: Vec<u8> = (0..MAX_DATA_BYTES).map(|at| (at * 7 / 3) as u8).collect();
    guest.indirect = true;
    let (status, _, data) = guest.command(client, &[ECHO], 0, &big, big.len() as u64);
    assert_eq!(status, status::OK);
    assert!(data == big);
    let stream = vec![ECHO; MAX_STREAM_BYTES];
    let (status, answer, _) = guest.command(client, &stream, MAX_ANSWER_BYTES as u32, &[], 0);
    assert_eq!((status, answer), (status::OK, stream));
    assert_eq!(guest.close(client), status::OK);
}

/// Cloud Hypervisor reads parts of it, adds memory region by region, and connects again. GPGPU-DEV-6, GPGPU-DEV-7.
#[test]
fn a_vm_of_cloud_hypervisor() {
    let host = Host::new("normal");
    for _ in 0..3 {
        let mut guest = host.boot(Vmm::cloud_hypervisor());
        let shown = Config::read_from_bytes(&guest.config(0, 64)).unwrap();
        let whole = Config::current().of_instance(shown.instance.get());
        for (offset, size) in [(0, 4), (4, 4), (8, 8), (63, 1), (64, 8), (200, 4)] {
            let mut expected = vec![0; size as usize];
            for (at, byte) in expected.iter_mut().enumerate() {
                *byte = whole
                    .as_bytes()
                    .get(offset as usize + at)
                    .copied()
                    .unwrap_or(0);
            }
            assert_eq!(guest.config(offset, size), expected);
        }
        // Writes are ignored, and do not end the connection.
        let flags = vhost::vhost_user::message::VhostUserConfigFlags::WRITABLE;
        guest.frontend.set_config(4, flags, &[0xff; 4]).unwrap();
        assert_eq!(guest.config(4, 4), VERSION.to_le_bytes());

        let client = guest.open();
        guest.indirect = true;
        echoes(&mut guest, client);
        // A buffer that spans two regions, and one above 4 GiB.
        let seam = (32u64 << 20) - 4096;
        let runs = [(seam, 8192), (1 << 32, 4096)];
        let region = guest
            .register(client, 0x7f00_0000_0000, 12288, &runs)
            .unwrap();
        guest
            .memory
            .write_slice(b"registry", GuestAddress(seam))
            .unwrap();
        let (status, answer, _) = guest.command(client, &[TOUCH, region as u8], 8, &[], 0);
        assert_eq!((status, &answer[..]), (status::OK, &b"registry"[..]));
        assert_eq!(guest.unregister(client, region), status::OK);
        let mut bytes = [0; 8];
        guest
            .memory
            .read_slice(&mut bytes, GuestAddress(seam))
            .unwrap();
        assert_eq!(&bytes, &b"registry".map(|byte| byte + 1));
        // The guest disappears while its client is open.
    }
}

/// A guest library without a VM is its own front end: each connection is a separate device.
#[test]
fn several_connections_to_one_socket() {
    let host = Host::new("normal");
    let mut guests: Vec<Guest> = (0..3).map(|_| host.boot(Vmm::qemu())).collect();
    let clients: Vec<u32> = guests.iter_mut().map(Guest::open).collect();
    let mut last = guests.pop().unwrap();
    echoes(&mut last, clients[2]);
    drop(last);
    for (guest, client) in guests.iter_mut().zip(clients) {
        echoes(guest, client);
    }
    let mut other = Guest::boot(&host.socket(1), Vmm::qemu());
    let client = other.open();
    echoes(&mut other, client);
}

#[test]
fn connections_over_the_limit_wait() {
    let host = Host::with_connections("normal", 1);
    let first = host.boot(Vmm::qemu());
    let socket = host.socket(0);
    let second = std::thread::spawn(move || {
        let mut guest = Guest::boot(&socket, Vmm::qemu());
        let client = guest.open();
        echoes(&mut guest, client);
    });
    drop(first);
    second.join().unwrap();
}

/// A library of another version would misinterpret bytes silently, so it is refused. GPGPU-DEV-18.
#[test]
fn pitfall_83_another_version_is_turned_away() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    for (version, digest) in [
        (VERSION + 1, api::issued::FAMILY),
        (VERSION, api::issued::FAMILY ^ 1),
    ] {
        let request = Guest::open_request(version, digest);
        assert_eq!(
            guest.control(request.as_bytes()).status(),
            status::VERSION_MISMATCH
        );
    }
    guest.open();
}

/// If a worker finds no GPU, or dies when it starts, the client gets an error and does not wait.
#[test]
fn pitfall_83_no_gpu_is_an_answer() {
    for (mode, expected) in [("no-gpu", status::NO_GPU), ("crash", status::NO_RESOURCES)] {
        let host = Host::new(mode);
        let mut guest = host.boot(Vmm::qemu());
        for _ in 0..2 {
            let open = guest.post_open();
            assert_eq!(guest.wait(CONTROL_QUEUE, open).status(), expected, "{mode}");
        }
    }
}

/// A silent worker delays only its own client.
#[test]
fn pitfall_83_a_silent_worker_delays_no_other() {
    let host = Host::new("mute");
    let mut guest = host.boot(Vmm::qemu());
    guest.post_open();
    assert_eq!(guest.close(1), status::NO_CLIENT);
    assert_eq!(guest.command(1, &[ECHO], 8, &[], 0).0, status::NO_CLIENT);
    assert_eq!(
        guest.used_index(CONTROL_QUEUE),
        1,
        "the client that is being opened waits"
    );
}

/// The configuration space contains the number of clients that the VM may have, and an additional client gets the
/// corresponding error. If the limit is above a connection's own, the connection's is shown. GPGPU-DEV-61,
/// GPGPU-DEV-19.
#[test]
fn the_limit_of_clients_is_shown_and_answered() {
    let host = Host::with_policy("normal", 8, 0, |vm| vm.max_clients = 3);
    let mut guest = host.boot(Vmm::qemu());
    let config = Config::read_from_bytes(&guest.config(0, 64)).unwrap();
    assert_eq!(config.max_clients.get(), 3);
    let clients = [guest.open(), guest.open(), guest.open()];
    let open = guest.post_open();
    let refused: OpenAnswer = guest.wait(CONTROL_QUEUE, open).head();
    assert_eq!(
        (refused.status.get(), refused.client.get()),
        (status::LIMIT, 0)
    );
    // Clients of the VM's other connections count too.
    let mut other = host.boot(Vmm::qemu());
    let open = other.post_open();
    assert_eq!(other.wait(CONTROL_QUEUE, open).status(), status::LIMIT);
    assert_eq!(guest.close(clients[0]), status::OK);
    let again = guest.open();
    echoes(&mut guest, again);

    let host = Host::with_policy("normal", 8, 0, |vm| vm.max_clients = 1024);
    let mut guest = host.boot(Vmm::qemu());
    let config = Config::read_from_bytes(&guest.config(0, 64)).unwrap();
    assert_eq!(config.of_instance(0), Config::current());
}
