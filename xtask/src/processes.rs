// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The processes of a command that hangs, in words.

use std::{collections::BTreeMap, fmt::Write, fs};

/// The longest part of a command line that is shown, in characters.
const MOST_SHOWN: usize = 200;

/// A process, as `/proc/PID/stat` describes it.
struct Process {
    state: char,
    parent: i32,
    group: i32,
}

impl Process {
    fn read(id: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// The name, which stands in parentheses, may contain both of them, and spaces.
    fn parse(stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        Some(Self {
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    }
}

fn all() -> BTreeMap<i32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|id| Some((id, Process::read(id)?)))
        .collect()
}

/// The members of a process group and everything that they have started, a line for each: its id, state and command, and
/// the place in the kernel where each of its threads waits.
pub fn of_group(group: i32) -> String {
    let all = all();
    let is_in_group = |mut id: i32| {
        // A chain of parents is not longer than the list.
        for _ in 0..all.len() {
            match all.get(&id) {
                Some(process) if process.group == group => return true,
                Some(process) => id = process.parent,
                None => return false,
            }
        }
        false
    };
    let mut text = String::new();
    for (&id, process) in all.iter().filter(|&(&id, _)| is_in_group(id)) {
        let command = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let command: String = command.chars().take(MOST_SHOWN).collect();
        let state = process.state;
        let _ = writeln!(text, "    {id} {state} {}: {}", command.trim(), waits(id));
    }
    text
}

/// The places in the kernel where a process's threads wait, each with the number of its threads.
fn waits(id: i32) -> String {
    let mut places = BTreeMap::<String, usize>::new();
    let threads = fs::read_dir(format!("/proc/{id}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let place = format!("{} in {}", read("comm").trim(), read("wchan"));
        *places.entry(place).or_default() += 1;
    }
    let places: Vec<_> = places
        .iter()
        .map(|(place, count)| format!("{count} {place}"))
        .collect();
    places.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_read_over() {
        let process = Process::parse("7 (a) S b) R 5 6 7 0\n").unwrap();
        assert_eq!((process.state, process.parent, process.group), ('R', 5, 6));
    }
}
