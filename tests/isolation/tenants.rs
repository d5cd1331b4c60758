// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One VM's objects are not accessible to another: handles, addresses, freed memory, interprocess handles.

use super::host::{BackEnd, on_gpu};

const VALUE: u32 = 0x5eed_c0de;

fn numbers(line: &str) -> Vec<String> {
    let words = line.split(' ').skip(1);
    words.map(|word| format!("0x{word}")).collect()
}

#[test]
fn pitfall_64_addresses_of_another_vm_lead_nowhere() {
    let Some(back_end) = BackEnd::start() else {
        return;
    };
    let owner = back_end.guest(1, &["own", &VALUE.to_string()]);
    let line = owner.wait_for("own ");
    // Device memory and pinned memory of the other VM, at their start and in the middle.
    let given = numbers(&line);
    for (at, offset) in [(0, 0), (0, 0x10_0000), (1, 0), (1, 0x8_0000)] {
        let address = u64::from_str_radix(&given[at][2..], 16).unwrap() + offset;
        let (status, said) = back_end.run(0, &["peek", &format!("{address:#x}")]);
        assert!(status.success(), "{status}: {said}");
        let line = said
            .lines()
            .find(|line| line.starts_with("codes"))
            .expect(&said);
        let words: Vec<&str> = line.split(' ').collect();
        // An address may happen to be this VM's own too, but never leads to the other's memory.
        assert_ne!(words[7], format!("{VALUE:x}"), "{line}");
    }
    // An address far from all of this VM's: each access by a function is an error, and a kernel faults.
    let address = u64::from_str_radix(&given[0][2..], 16).unwrap() + (64 << 30);
    let (_, said) = back_end.run(0, &["peek", &format!("{address:#x}")]);
    let line = said
        .lines()
        .find(|line| line.starts_with("codes"))
        .expect(&said);
    let codes: Vec<&str> = line.split(' ').skip(1).take(5).collect();
    assert!(codes.iter().all(|code| *code != "0"), "{line}");
    assert_eq!(codes[4], "700", "{line}");
    let (status, said) = owner.end();
    assert!(
        status.success() && said.contains("kept"),
        "{status}: {said}"
    );
}

#[test]
fn pitfall_63_handles_of_another_vm_are_refused() {
    let Some(back_end) = BackEnd::start() else {
        return;
    };
    let owner = back_end.guest(1, &["own", &VALUE.to_string()]);
    let given = numbers(&owner.wait_for("own "));
    let mut arguments = vec!["steal"];
    arguments.extend(given.iter().map(String::as_str));
    // NVIDIA's driver crashes on such handles. Here the guest's own library checks them.
    let (status, said) = back_end.run(0, &arguments);
    assert!(
        status.success() && said.contains("refused"),
        "{status}: {said}"
    );
    let (status, said) = owner.end();
    assert!(
        status.success() && said.contains("kept"),
        "{status}: {said}"
    );
}

#[test]
fn pitfall_64_freed_memory_of_another_vm_is_never_seen() {
    let Some(back_end) = BackEnd::start() else {
        return;
    };
    // All available memory; the software GPU has 1 GiB, and is slow.
    let most = if on_gpu() { 1u64 << 40 } else { 256 << 20 };
    let (value, most) = (VALUE.to_string(), most.to_string());
    let take = |said: &str, word: &str| -> u64 {
        let mut words = said.split_whitespace().skip_while(|other| *other != word);
        words.nth(1).unwrap().parse().unwrap()
    };
    for killed in [false, true] {
        let mut arguments = vec!["fill", &value, &most];
        if killed {
            arguments.push("stay");
        }
        // The handles of the previous process are included.
        let (filler, line) = super::host::wait_for("the memory of the process before", || {
            let filler = back_end.guest(0, &arguments);
            let line = filler.wait_for("");
            (!line.contains("CUDA_ERROR_OUT_OF_MEMORY")).then_some((filler, line))
        });
        let filled = take(&line, "filled");
        assert!(filled >= 64 << 20, "{line}");
        if killed {
            filler.kill();
        } else {
            assert!(filler.end().0.success());
        }
        let (status, said) = super::host::wait_for("the memory of a process that is gone", || {
            let (status, said) = back_end.run(1, &["look", &value, &most]);
            // The other's memory is returned after a moment; until then there may not even be room for a module.
            let enough = said.contains("looked") && take(&said, "looked") * 10 >= filled * 9;
            let failed = !status.success() && !said.contains("CUDA_ERROR_OUT_OF_MEMORY");
            (enough || failed).then_some((status, said))
        });
        assert!(status.success(), "{status}: {said}");
        assert_eq!(take(&said, "found"), 0, "{said}");
        assert_eq!(take(&said, "nonzero"), 0, "{said}");
    }
}

#[test]
fn pitfall_65_handles_open_only_objects_of_the_same_vm() {
    let Some(back_end) = BackEnd::start() else {
        return;
    };
    for vm in [0, 1] {
        let owner = back_end.guest(1, &["share", &VALUE.to_string()]);
        let line = owner.wait_for("share ");
        let handles: Vec<&str> = line.split(' ').skip(1).collect();
        let (status, said) = back_end.run(vm, &["ipc", handles[0], handles[1]]);
        assert!(status.success(), "{status}: {said}");
        let (status, kept) = owner.end();
        assert!(status.success(), "{status}: {kept}");
        if vm == 1 {
            let word = format!("codes 0 0 open 0 word {VALUE:x}");
            assert!(said.contains(&word), "{said}");
            assert!(kept.contains("changed"), "{kept}");
            continue;
        }
        let line = said.lines().find(|line| line.starts_with("codes"));
        let words: Vec<&str> = line.expect(&said).split(' ').collect();
        assert!(words[1] != "0" && words[2] != "0", "{said}");
        assert_eq!(words[3..], ["open", "0", "word", "0"], "{said}");
        assert!(kept.contains("kept"), "{kept}");
    }
}
