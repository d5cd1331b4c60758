// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
use std::path::Path;

use super::*;

fn parse(text: &str) -> Result<Policies, Error> {
    Policies::parse(Path::new("policy.toml"), text)
}

/// The error of a text, with the number of its line.
fn wrong(text: &str) -> (usize, String) {
    let error = parse(text).unwrap_err();
    let line = error.place.strip_prefix("policy.toml:").expect("a line");
    (line.parse().unwrap(), error.message)
}

#[test]
fn a_section_limits_its_vm_and_the_defaults_complete_it() {
    let text = r#"
[defaults]
memory = "8GiB"
max-clients = 64
longest-kernel = "10s"
overrun-limit = "5s"
pause-limit = "3s"
sensors = true

[[vm]]
name = "alice"
socket = "/tmp/alice.sock"
gpus = [1, 0]
weight = 300

[[vm]]
socket = "/tmp/bob.sock"
memory = "512 MiB"
max-clients = 2
longest-kernel = "unlimited"
overrun-limit = "unlimited"
pause-limit = "unlimited"
sensors = false
"#;
    let policies = parse(text).unwrap();
    let [alice, bob] = &policies.vms[..] else {
        panic!("{policies:?}");
    };
    assert_eq!(
        *alice,
        VmPolicy {
            name: "alice".to_owned(),
            socket: "/tmp/alice.sock".into(),
            gpus: Some(vec![1, 0]),
            memory: Some(8 << 30),
            weight: 300,
            max_clients: 64,
            longest_kernel: Some(Duration::from_secs(10)),
            overrun_limit: Some(Duration::from_secs(5)),
            pause_limit: Some(Duration::from_secs(3)),
            sensors: true,
        }
    );
    assert_eq!(
        *bob,
        VmPolicy {
            memory: Some(512 << 20),
            max_clients: 2,
            overrun_limit: None,
            pause_limit: None,
            ..VmPolicy::new("/tmp/bob.sock".into())
        }
    );
    assert_eq!(bob.weight, DEFAULT_WEIGHT);
    assert!(alice.to_string().ends_with(", sensors true"), "{alice}");
    assert!(bob.to_string().ends_with(", sensors false"), "{bob}");
    assert_eq!(bob.name, "/tmp/bob.sock");
}

#[test]
fn every_error_names_its_line() {
    let vm = "[[vm]]\nsocket = \"/tmp/a\"\n";
    let at = |line: usize, text: &str, says: &str| {
        let (found, message) = wrong(text);
        assert_eq!(found, line, "{text}: {message}");
        assert!(message.contains(says), "{text}: {message}");
    };
    // Text that is not TOML.
    at(2, "[defaults]\nweight = \n", "");
    at(3, &format!("{vm}weight 5"), "");
    at(2, "[[vm]]\nsocket = \"/tmp/a", "");
    // Unknown or missing keys.
    at(3, &format!("{vm}wieght = 5"), "unknown field `wieght`");
    at(1, "[default]\nweight = 5", "unknown field `default`");
    at(
        3,
        "\n[defaults]\nsocket = \"/tmp/a\"",
        "unknown field `socket`",
    );
    at(2, "\n[[vm]]\nname = \"a\"\n", "missing field `socket`");
    at(4, &format!("{vm}weight = 5\nweight = 6"), "duplicate key");
    // Values.
    at(3, &format!("{vm}memory = \"8 elephants\""), "not a size");
    at(3, &format!("{vm}memory = 0"), "device memory");
    at(3, &format!("{vm}memory = true"), "a size such as");
    at(3, &format!("{vm}weight = 0"), "1 to 10000");
    at(3, &format!("{vm}weight = -1"), "");
    at(3, &format!("{vm}weight = 1.5"), "a number such as");
    at(3, &format!("{vm}max-clients = 0"), "1 to 1024");
    at(3, &format!("{vm}max-clients = 4096"), "1 to 1024");
    at(
        3,
        &format!("{vm}longest-kernel = 10"),
        "a time needs a unit",
    );
    at(3, &format!("{vm}longest-kernel = \"0s\""), "1ms");
    at(3, &format!("{vm}sensors = \"yes\""), "expected a boolean");
    at(3, &format!("{vm}gpus = []"), "empty list of GPUs");
    at(3, &format!("{vm}gpus = [0, 0]"), "twice");
    at(3, &format!("{vm}gpus = [64]"), "not a GPU number");
    at(3, &format!("{vm}gpus = \"first\""), "not a list of GPUs");
    at(
        2,
        "[defaults]\nmemory = \"0B\"\n[[vm]]\nsocket = \"/tmp/a\"",
        "",
    );
    // Values that conflict with each other, or that the host does not have.
    at(
        5,
        &format!("{vm}\n[[vm]]\nsocket = \"/tmp/a\""),
        "VM \"/tmp/a\" has the same socket",
    );
    at(
        5,
        &format!("{vm}\n[[vm]]\nsocket = \"/tmp/../tmp/./a\""),
        "same socket",
    );
    let named = "[[vm]]\nname = \"x\"\nsocket = ";
    at(
        5,
        &format!("{named}\"/tmp/a\"\n{named}\"/tmp/b\""),
        "the name \"x\"",
    );
    at(1, "vm = [{ socket = \"/tmp/a\", name = \"\" }]", "1 to 128");
    at(
        2,
        "[[vm]]\nname = \"a\\nb\"\nsocket = \"/tmp/a\"",
        "control",
    );
    at(2, "[[vm]]\nsocket = \"/nowhere/a\"", "/nowhere");
    at(2, "[[vm]]\nsocket = \"/etc/passwd/a\"", "/etc/passwd");
    at(
        2,
        &format!("[[vm]]\nsocket = \"/tmp/{}\"", "x".repeat(103)),
        "107",
    );
    at(2, "[[vm]]\nsocket = \"/\"", "not the path");
}

#[test]
fn a_file_without_vms_or_no_file_is_refused_by_its_name() {
    let error = parse("[defaults]\nweight = 5\n").unwrap_err().to_string();
    assert_eq!(error, "policy.toml: no [[vm]] section found");
    let error = Policies::read(Path::new("/nowhere/policy.toml")).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("/nowhere/policy.toml: No such file")
    );
}

#[test]
fn gpus_that_the_host_has_not_are_refused_with_the_line_that_names_them() {
    let text = "[defaults]\ngpus = [0]\n[[vm]]\nsocket = \"/tmp/a\"\n[[vm]]\nsocket = \"/tmp/b\"\ngpus = [0, 2]\n";
    let policies = parse(text).unwrap();
    assert_eq!(policies.check_gpus(3), Ok(()));
    let error = policies.check_gpus(2).unwrap_err();
    assert_eq!(error.place, "policy.toml:7");
    assert!(error.message.contains("no GPU 2"), "{error}");
    let defaults = parse("[defaults]\ngpus = [1]\n[[vm]]\nsocket = \"/tmp/a\"").unwrap();
    assert_eq!(defaults.check_gpus(1).unwrap_err().place, "policy.toml:2");
    let flags = Policies::of_flags(
        vec![VmPolicy {
            gpus: Some(vec![1]),
            ..VmPolicy::new("/tmp/a".into())
        }],
        Libraries::default(),
    );
    assert_eq!(flags.check_gpus(1).unwrap_err().place, "--gpus");
}

#[test]
fn limits_that_a_gpu_cannot_hold_together_are_doubted() {
    let vm = |socket: &str, memory: Option<u64>, gpus: Option<Vec<u32>>| VmPolicy {
        memory,
        gpus,
        ..VmPolicy::new(socket.into())
    };
    let policies = Policies::of_flags(
        vec![
            vm("a", Some(6), None),
            vm("b", Some(5), Some(vec![1])),
            vm("c", None, None),
        ],
        Libraries::default(),
    );
    let gpu = HostGpu {
        name: "G".to_owned(),
        memory: 10,
        address: String::new(),
    };
    let doubts = policies.doubts(&[gpu.clone(), gpu], true);
    assert_eq!(doubts.len(), 1);
    assert!(doubts[0].starts_with("GPU 1 has 10 B"), "{doubts:?}");
}

#[test]
fn limits_that_need_the_scheduler_are_doubted_without_it() {
    let vm = VmPolicy {
        longest_kernel: Some(std::time::Duration::from_secs(1)),
        ..VmPolicy::new("a".into())
    };
    let all = vec![vm, VmPolicy::new("b".into())];
    let policies = Policies::of_flags(all, Libraries::default());
    assert_eq!(policies.doubts(&[], true), [""; 0]);
    let doubts = policies.doubts(&[], false);
    assert_eq!(doubts.len(), 1, "{doubts:?}");
    assert!(doubts[0].contains("longest-kernel"), "{doubts:?}");
}

#[test]
fn a_running_vm_takes_over_all_but_its_socket_and_its_gpus() {
    let mut vm = VmPolicy {
        gpus: Some(vec![0]),
        ..VmPolicy::new("/tmp/a".into())
    };
    let new = VmPolicy {
        name: "a".to_owned(),
        gpus: Some(vec![1]),
        memory: Some(1 << 30),
        weight: 7,
        sensors: true,
        ..VmPolicy::new("/tmp/b".into())
    };
    let changes = vm.renew(&new);
    assert_eq!(changes.len(), 4, "{changes:?}");
    assert!(changes.contains(&"weight 100 \u{2192} 7".to_owned()));
    assert!(changes.contains(&"sensors false \u{2192} true".to_owned()));
    assert!(vm.sensors);
    assert_eq!((vm.weight, vm.memory), (7, Some(1 << 30)));
    assert_eq!(vm.gpus, Some(vec![0]));
    assert_eq!(vm.socket, Path::new("/tmp/a"));
    assert!(vm.renew(&vm.clone()).is_empty());
}

#[test]
fn the_example_file_is_one() {
    let text = include_str!("../../docs/examples/policy.toml");
    // The installation of the service makes the directory of its sockets.
    let text = text.replace("/run/virtio-gpgpu/", "/tmp/");
    let policies = parse(&text).unwrap();
    assert!(policies.vms.len() >= 2);
    assert!(policies.vms.iter().any(|vm| vm.memory.is_some()));
}
