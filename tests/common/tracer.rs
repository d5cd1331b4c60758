// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A process that stops another one just before its exit: killed, but with its memory mapped and its files open, like a
//! process with a thread that hangs in a driver.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    ptr::{null_mut, without_provenance_mut},
};

use libc::{
    __WALL, PTRACE_CONT, PTRACE_DETACH, PTRACE_EVENT_EXIT, PTRACE_O_TRACEEXIT, PTRACE_POKEDATA,
    PTRACE_SEIZE, SIGTRAP, WIFSTOPPED, WSTOPSIG, c_void, pid_t,
};

/// The variable with the process to stop, and the address to which it writes when it is released.
pub const HELD: &str = "TRACED_PROCESS";
/// The value that it writes.
pub const LAST_WORD: u64 = 0x6c61_7374_2077_6f72;

/// See the module's documentation.
pub struct Tracer {
    process: Child,
    input: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Tracer {
    /// Waits for the exit of a process, to stop it there; on its release it writes to the address, unless that is 0.
    /// `None` if this host lets no process trace another.
    pub fn new(process: u32, address: u64) -> Option<Self> {
        let mut tracer = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tracer", "--nocapture", "--quiet"])
            .env(HELD, format!("{process} {address}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = tracer.stdin.take().unwrap();
        let said = BufReader::new(tracer.stdout.take().unwrap());
        let mut this = Self {
            process: tracer,
            input,
            said,
        };
        match this.hears(&["seized", "refused"]) {
            "seized" => Some(this),
            _ => None,
        }
    }

    fn hears<'a>(&mut self, words: &[&'a str]) -> &'a str {
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "it is gone");
            if let Some(word) = words.iter().find(|word| line.trim_end().ends_with(*word)) {
                return word;
            }
        }
    }

    /// Waits until the process has been stopped at its exit.
    pub fn holds(&mut self) {
        self.hears(&["held"]);
    }

    /// Makes it write, and lets it exit.
    pub fn let_go(mut self) {
        self.input.write_all(b"x").unwrap();
        assert!(self.process.wait().unwrap().success());
    }
}

fn ptrace(request: u32, process: pid_t, address: u64, data: u64) -> bool {
    let address: *mut c_void = match address {
        0 => null_mut(),
        address => without_provenance_mut(address as usize),
    };
    // SAFETY: the call reads and writes memory of the other process alone.
    unsafe { libc::ptrace(request, process, address, data) == 0 }
}

/// The main function of the process.
pub fn run(held: &str) {
    let mut numbers = held.split(' ').map(|number| number.parse::<u64>().unwrap());
    let (process, address) = (numbers.next().unwrap() as pid_t, numbers.next().unwrap());
    if !ptrace(PTRACE_SEIZE, process, 0, PTRACE_O_TRACEEXIT as u64) {
        return println!("refused");
    }
    println!("\nseized");
    loop {
        let mut status = 0;
        // SAFETY: the pointer is to a value that lives across the call.
        let waited = unsafe { libc::waitpid(process, &mut status, __WALL) };
        assert_eq!(waited, process);
        assert!(WIFSTOPPED(status), "it has ended");
        if status >> 8 == SIGTRAP | PTRACE_EVENT_EXIT << 8 {
            break;
        }
        // An ordinary signal.
        let signal = if status >> 16 == 0 {
            WSTOPSIG(status)
        } else {
            0
        };
        assert!(ptrace(PTRACE_CONT, process, 0, signal as u64));
    }
    println!("held");
    std::io::stdin().read_exact(&mut [0]).unwrap();
    assert!(address == 0 || ptrace(PTRACE_POKEDATA, process, address, LAST_WORD));
    assert!(ptrace(PTRACE_DETACH, process, 0, 0));
}
