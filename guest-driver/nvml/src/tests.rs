// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tests without a host.

use std::{ffi::c_char, ptr::null_mut, time::Duration};

use gpgpu_protocol::{
    api::{
        DeviceInfo, DeviceUsage, Hello, KnownOperation, ProcessUsage, Sensor, SensorValue,
        issued::{ISSUED, Shared},
        reply,
    },
    cuda::CUDA_ERROR_NOT_SUPPORTED,
};

use crate::{
    Out, device,
    host::{self, Address, Known},
    links,
    sensors::{self, Values},
    status, system, types, usage,
};

fn read(buffer: &[c_char]) -> String {
    let bytes = buffer.iter().take_while(|byte| **byte != 0);
    bytes.map(|byte| *byte as u8 as char).collect()
}

#[test]
fn addresses_are_read_in_all_forms_that_nvml_has() {
    let address = Address {
        domain: 0,
        bus: 0x3b,
        device: 0,
    };
    for text in ["0000:3b:00.0", "00000000:3B:00.0", "3b:00", "0:3B:0.0"] {
        assert_eq!(Address::read(text), Some(address), "{text}");
    }
    for text in [
        "",
        "3b",
        "0000:3b:00.1",
        "x:3b:00.0",
        "0:0:3b:00.0",
        "3b:00.0 ",
    ] {
        assert_eq!(Address::read(text), None, "{text}");
    }
    assert_eq!(address.text(4), "0000:3B:00.0");
    assert_eq!(address.text(8), "00000000:3B:00.0");
}

#[test]
fn devices_come_in_the_order_of_their_addresses() {
    let device = |bus: &str, byte: u8| DeviceInfo {
        pci_bus_id: bus.to_owned(),
        uuid: [byte; 16],
        ..DeviceInfo::default()
    };
    let hello = Hello {
        driver_version: 13000,
        devices: vec![device("0000:5e:00.0", 1), device("0000:3b:00.0", 0xab)],
    };
    let known = Known::new(hello.clone(), String::new());
    assert_eq!(known.driver_version, "13.0");
    let uuid = "GPU-abababab-abab-abab-abab-abababababab";
    assert_eq!(known.devices[0].uuid, uuid);
    assert_eq!(known.device(2).err(), Some(status::INVALID_ARGUMENT));
    let known = Known::new(hello, "580.65.06".to_owned());
    assert_eq!(known.driver_version, "580.65.06");
}

#[test]
fn devices_are_known_by_their_uuids_with_and_without_the_prefix() {
    let uuid = "GPU-abababab-abab-abab-abab-abababababab";
    assert!(device::is_uuid(uuid, uuid));
    assert!(device::is_uuid(uuid, &uuid[4..]));
    for other in ["", "GPU-", "GPU-abababab", &uuid.to_uppercase(), &uuid[5..]] {
        assert!(!device::is_uuid(uuid, other), "{other}");
    }
}

#[test]
fn the_longer_form_of_an_address_has_the_class() {
    let pci = types::PciInfo {
        busIdLegacy: [0; 16],
        domain: 1,
        bus: 0x3b,
        device: 2,
        pciDeviceId: 3,
        pciSubSystemId: 4,
        busId: device::chars("00000001:3B:02.0"),
    };
    let of = types::PciInfoExt::from(pci);
    assert_eq!(of.version, 0x0100_0040);
    assert_eq!((of.domain, of.bus, of.device), (1, 0x3b, 2));
    assert_eq!((of.pciDeviceId, of.pciSubSystemId), (3, 4));
    assert_eq!(of.baseClass, 3);
    assert_eq!(read(&of.busId), "00000001:3B:02.0");
    let none = Out(null_mut());
    // SAFETY: a place that is NULL is not written.
    let asked = unsafe { device::nvmlDeviceGetPciInfoExt(1, none) };
    assert_eq!(asked, status::UNINITIALIZED);
}

#[test]
fn texts_are_given_whole_or_not_at_all() {
    let mut buffer = [1; 6];
    let to = Out(buffer.as_mut_ptr());
    assert_eq!(to.set_text(5, "hello"), Err(status::INSUFFICIENT_SIZE));
    assert_eq!(to.set_text(0, ""), Err(status::INSUFFICIENT_SIZE));
    assert_eq!(to.set_text(6, "hello"), Ok(()));
    assert_eq!(read(&buffer), "hello");
    assert_eq!(to.set_start_of_text(4, "häuser"), Ok(()));
    assert_eq!(read(&buffer).chars().next(), Some('h'));
    assert_eq!(to.set_start_of_text(0, "x"), Err(status::INVALID_ARGUMENT));
    let none = Out(null_mut::<c_char>());
    assert_eq!(none.set_text(6, "hello"), Err(status::INVALID_ARGUMENT));
}

#[test]
fn nothing_is_said_before_the_start() {
    let mut count = 0;
    // SAFETY: the pointers are to values that live across the calls, or NULL.
    unsafe {
        let count = Out(&raw mut count);
        assert_eq!(device::nvmlDeviceGetCount_v2(count), status::UNINITIALIZED);
        assert_eq!(system::nvmlShutdown(), status::UNINITIALIZED);
        let memory = Out(null_mut());
        let asked = usage::nvmlDeviceGetMemoryInfo(1, memory);
        assert_eq!(asked, status::UNINITIALIZED);
        let asked = sensors::nvmlDeviceGetPowerUsage(1, Out(null_mut()));
        assert_eq!(asked, status::UNINITIALIZED);
        assert_eq!(system::nvmlInitWithFlags(4), status::INVALID_ARGUMENT);
    }
}

#[test]
fn a_process_with_two_connections_counts_once() {
    let process = |pid, bytes| ProcessUsage { pid, bytes };
    let usage = DeviceUsage {
        processes: vec![process(7, 1), process(8, 2), process(7, 4)],
        ..DeviceUsage::default()
    };
    assert_eq!(usage::processes(usage), [process(7, 5), process(8, 2)]);
}

#[test]
fn shares_are_of_the_time_and_at_most_all_of_it() {
    let second = Duration::from_secs(1);
    assert_eq!(host::share(250_000_000, second), 25);
    assert_eq!(host::share(u64::MAX, second), 100);
    assert_eq!(host::share(1, Duration::ZERO), 100);
}

#[test]
fn kinds_of_gpus_are_told_apart() {
    assert_eq!(device::architecture((8, 6)), 7);
    assert_eq!(device::architecture((8, 9)), 8);
    assert_eq!(device::architecture((12, 0)), 10);
    assert_eq!(device::architecture((2, 0)), u32::MAX);
    assert_eq!(device::brand("NVIDIA GeForce RTX 4090"), 15);
    assert_eq!(device::brand("NVIDIA H100 80GB HBM3"), 14);
    assert_eq!(device::cores_of_multiprocessor((9, 0)), Ok(128));
    assert_eq!(device::cores_of_multiprocessor((8, 0)), Ok(64));
    assert_eq!(types::MEMORY_V2, 0x0200_0028);
}

#[test]
fn gpus_of_a_kind_have_as_many_links_as_nccl_looks_for() {
    for (capability, links) in [((6, 0), 4), ((7, 0), 6), ((8, 0), 12), ((9, 0), 18)] {
        let known = links::links_of(capability).map(|(count, _)| count);
        assert_eq!(known, Some(links), "{capability:?}");
    }
    assert_eq!(links::links_of((8, 9)), None);
    let pairs: Vec<_> = host::pairs(3).collect();
    assert_eq!(pairs, [(0, 1), (0, 2), (1, 2)]);
    assert_eq!(host::pairs(1).count(), 0);
}

#[test]
fn a_process_has_the_name_that_it_was_started_by() {
    let own = std::env::args().next();
    assert_eq!(system::process_name(std::process::id()), own);
    assert_eq!(system::process_name(u32::MAX), None);
}

/// The operations of a host that supports a table and all earlier tables.
fn host_of(table: u32) -> Shared {
    let mut shared = Shared::default();
    let issued = ISSUED.iter().filter(|issued| issued.table <= table);
    shared.add(issued.map(|issued| KnownOperation {
        op: issued.op,
        layout: issued.layout,
    }));
    shared
}

#[test]
fn an_older_host_is_not_asked_for_sensors() {
    let mut issued = ISSUED.iter();
    let issued = issued.find(|issued| issued.name == "gpgpuDeviceSensors");
    let table = issued.unwrap().table;
    let old = host_of(table - 1);
    let call = |_: &_| panic!("the host does not know the question");
    let answer = host::ask_sensors(0, |op| Ok(old.has(op)), call);
    assert_eq!(answer.err(), Some(CUDA_ERROR_NOT_SUPPORTED));
    assert_eq!(host::code(CUDA_ERROR_NOT_SUPPORTED), status::NOT_SUPPORTED);

    let new = host_of(table);
    let sensors = vec![SensorValue {
        sensor: Sensor::Power.number(),
        value: 7,
    }];
    let reply = reply::gpgpuDeviceSensors {
        sensors,
        ..Default::default()
    };
    let answer = host::ask_sensors(
        3,
        |op| Ok(new.has(op)),
        |question| {
            assert_eq!(question.dev, 3);
            Ok(reply)
        },
    );
    assert_eq!(answer.unwrap().get(Sensor::Power), Ok(7));
}

#[test]
fn a_value_that_the_host_does_not_know_is_not_supported() {
    let value = |sensor, value| SensorValue { sensor, value };
    let values = Values::from(vec![
        value(Sensor::Energy.number(), u64::MAX),
        value(999, 1),
    ]);
    assert_eq!(values.get(Sensor::Energy), Ok(u64::MAX));
    assert_eq!(values.get(Sensor::Power), Err(status::NOT_SUPPORTED));
    assert!(values.are_known() && !Values::default().are_known());
}

#[test]
fn parts_have_the_sensors_that_nvml_documents() {
    assert_eq!(sensors::clock(1), Ok(Sensor::SmClock));
    assert_eq!(sensors::max_clock(2), Ok(Sensor::MaxMemoryClock));
    assert_eq!(sensors::threshold(3), Ok(Sensor::MaxTemperature));
    assert_eq!(sensors::threshold(4), Err(status::NOT_SUPPORTED));
    for wrong in [
        sensors::clock(4),
        sensors::max_clock(u32::MAX),
        sensors::threshold(8),
    ] {
        assert_eq!(wrong, Err(status::INVALID_ARGUMENT));
    }
    assert_eq!(sensors::of_field(191), Some(Sensor::Energy));
    assert_eq!(sensors::of_field(91), None);
    assert_eq!(types::TEMPERATURE_V1, 0x0100_000c);
}

#[test]
fn gpus_with_fabric_support_are_in_no_fabric() {
    assert_eq!(
        (types::FABRIC_V2, types::FABRIC_V3),
        (0x0200_0024, 0x0300_0028)
    );
    for version in [types::FABRIC_V2, types::FABRIC_V3] {
        let of = |byte| types::FabricV3 {
            fabric: types::Fabric {
                version,
                clusterUuid: [byte; 16],
                state: byte.into(),
                ..types::Fabric::default()
            },
            healthSummary: byte,
        };
        let (mut info, mut right) = (of(7), of(0));
        let mut ask = |major| device::fabric(major, Out(&raw mut info));
        assert_eq!(ask(8), Err(status::NOT_SUPPORTED));
        assert_eq!(ask(9), Ok(()));
        // The shorter version ends before the last field.
        if version == types::FABRIC_V2 {
            right.healthSummary = 7;
        }
        assert_eq!(info, right);
        info.fabric.version += 1;
        let wrong = device::fabric(9, Out(&raw mut info));
        assert_eq!(wrong, Err(status::ARGUMENT_VERSION_MISMATCH));
    }
    let nowhere = device::fabric(9, Out(null_mut()));
    assert_eq!(nowhere, Err(status::INVALID_ARGUMENT));
}
