// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Numbers in readable form, and the table that is printed once.

use std::fmt::Write;

use super::rates::{Client, Rates, Vm};

/// The columns' names and widths. The first column takes the remaining width.
pub const COLUMNS: [(&str, usize); 9] = [
    ("VM", 24),
    ("CLIENTS", 7),
    ("GPU", 6),
    ("WEIGHT", 6),
    ("LAUNCHES/s", 10),
    ("COPIES/s", 10),
    ("MEMORY", 19),
    ("QUEUED", 7),
    ("WAITING", 7),
];

/// Text of other processes, with the characters escaped that could control a terminal.
pub fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        // Format characters, such as those of direction, change the appearance of the rest of the line.
        let is_format = matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        if character.is_control() || is_format {
            printable.extend(character.escape_unicode());
        } else {
            printable.push(character);
        }
    }
    printable
}

/// A size in the binary unit that gives a small number. The crate bytesize shows one byte less than a GiB as 1024.0
/// MiB.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1 << 10 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while value >= 1023.95 && units.len() > 0 {
        value /= 1024.0;
        unit = units.next();
    }
    format!("{value:.1} {}", unit.unwrap_or(&"PiB"))
}

/// A rate, with a suffix if it is large.
pub fn rate(rate: f64) -> String {
    match rate {
        rate if rate >= 999.95e9 => format!("{:.1}T", rate / 1e12),
        rate if rate >= 999.95e6 => format!("{:.1}G", rate / 1e9),
        rate if rate >= 999.95e3 => format!("{:.1}M", rate / 1e6),
        rate if rate >= 9999.5 => format!("{:.1}k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

/// A share in percent: 1 is 100 %.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// The device memory in use, and its limit if there is one.
pub fn memory(vm: &Vm) -> String {
    match vm.memory_limit_bytes {
        Some(limit) => format!("{} / {}", bytes(vm.work.memory_bytes), bytes(limit)),
        None => bytes(vm.work.memory_bytes),
    }
}

/// The cells of a VM's line.
pub fn vm_cells(vm: &Vm) -> [String; COLUMNS.len()] {
    [
        printable(&vm.name),
        vm.clients.len().to_string(),
        percent(vm.gpu_share),
        vm.weight.to_string(),
        rate(vm.work.launches_per_second),
        rate(vm.work.copied_bytes_per_second) + "B",
        memory(vm),
        vm.work.queued_commands.to_string(),
        percent(vm.waiting),
    ]
}

/// The cells of a client's line.
pub fn client_cells(client: &Client) -> [String; COLUMNS.len()] {
    let who = format!(
        "  {} {} ({}), worker {}",
        client.client,
        printable(&client.name),
        client.guest_process,
        client.worker
    );
    [
        who,
        String::new(),
        String::new(),
        String::new(),
        rate(client.work.launches_per_second),
        rate(client.work.copied_bytes_per_second) + "B",
        bytes(client.work.memory_bytes),
        client.work.queued_commands.to_string(),
        String::new(),
    ]
}

/// The service in one line.
pub fn heading(rates: &Rates) -> String {
    format!(
        "virtio-gpgpu {}, up {}, {} VMs, {} clients",
        printable(&rates.version),
        uptime(rates.uptime_seconds),
        rates.vms.len(),
        rates.clients()
    )
}

fn uptime(seconds: f64) -> String {
    let minutes = seconds as u64 / 60;
    match (minutes / 1440, minutes / 60 % 24, minutes % 60) {
        (0, hours, minutes) => format!("{hours}:{minutes:02}"),
        (days, hours, minutes) => format!("{days} d {hours}:{minutes:02}"),
    }
}

/// The whole table, with every client.
pub fn table(rates: &Rates) -> String {
    let mut lines = vec![COLUMNS.map(|(name, _)| name.to_owned())];
    for vm in &rates.vms {
        lines.push(vm_cells(vm));
        lines.extend(vm.clients.iter().map(client_cells));
    }
    let mut widths = COLUMNS.map(|(_, width)| width);
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut table = heading(rates) + "\n\n";
    for line in &lines {
        let mut text = format!("{:<width$}", line[0], width = widths[0]);
        for (cell, width) in line.iter().zip(widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        table.push_str(text.trim_end());
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rates::tests::status;

    #[test]
    fn numbers_are_short() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1 << 30), "1.0 GiB");
        assert_eq!(bytes((1 << 30) - 1), "1.0 GiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
        assert_eq!(rate(0.0), "0");
        assert_eq!(rate(9999.0), "9999");
        assert_eq!(rate(123_456.0), "123.5k");
        assert_eq!(rate(2e9), "2.0G");
        assert_eq!(percent(0.3333), "33.3%");
    }

    #[test]
    fn names_cannot_act_on_the_terminal() {
        assert_eq!(
            printable("a\u{1b}[2Jb\n\u{202e}c"),
            "a\\u{1b}[2Jb\\u{a}\\u{202e}c"
        );
        assert_eq!(printable("Größe 数"), "Größe 数");
    }

    #[test]
    fn the_table_has_every_vm_and_client() {
        let rates = Rates::between(&status(10.0), &status(12.0));
        let table = table(&rates);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "virtio-gpgpu 1.2.3, up 0:00, 2 VMs, 2 clients");
        assert!(lines[2].starts_with("VM "));
        let cells: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "b", "1", "60.0%", "100", "2000", "4.0GB", "2.0", "GiB", "0", "25.0%"
            ]
        );
        assert!(
            lines[4].starts_with("  7 python3\\u{1b}[2J (812), worker 4711"),
            "{table}"
        );
        assert!(lines[5].contains("2.0 GiB / 8.0 GiB"), "{table}");
        assert_eq!(lines.len(), 7);
        assert!(table.chars().all(|c| c == '\n' || !c.is_control()));
    }
}
