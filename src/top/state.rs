// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The state of the screen, and the effects of keys on it.

use std::{collections::HashSet, fmt};

use ratatui::{
    crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    widgets::TableState,
};

use super::rates::{Client, Rates, Vm};
use crate::supervisor::metrics::{Address, Status};

/// The effect of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Ends the program.
    Quit,
    /// Selects the line above.
    Up,
    /// Selects the line below.
    Down,
    /// Shows or hides the clients of the VM.
    Clients,
    /// Shows or hides all clients.
    AllClients,
    /// Stops or continues the updates.
    Pause,
}

impl Key {
    /// The key of a terminal's event.
    pub fn of(event: KeyEvent) -> Option<Self> {
        if event.kind == KeyEventKind::Release {
            return None;
        }
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        match event.code {
            KeyCode::Char('c') if control => Some(Self::Quit),
            KeyCode::Char('q') | KeyCode::Esc => Some(Self::Quit),
            KeyCode::Up | KeyCode::Char('k') => Some(Self::Up),
            KeyCode::Down | KeyCode::Char('j') => Some(Self::Down),
            KeyCode::Enter => Some(Self::Clients),
            KeyCode::Char('c') => Some(Self::AllClients),
            KeyCode::Char('p' | ' ') => Some(Self::Pause),
            _ => None,
        }
    }
}

/// A line of the table.
#[derive(Debug, Clone, Copy)]
pub enum Line<'a> {
    /// A VM.
    Vm(&'a Vm),
    /// A client of the VM above.
    Client(&'a Vm, &'a Client),
}

impl Line<'_> {
    fn vm(&self) -> &str {
        match self {
            Self::Vm(vm) | Self::Client(vm, _) => &vm.name,
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct State {
    /// The address of the service.
    pub address: Address,
    /// The latest rates.
    pub rates: Rates,
    /// The reason why there are no newer rates.
    pub error: Option<String>,
    /// Whether updates are ignored.
    pub is_paused: bool,
    /// The selected line, and the first visible line.
    pub table: TableState,
    last: Status,
    /// VMs whose clients are shown.
    open: HashSet<String>,
    all: bool,
}

impl State {
    /// The state after the first sample.
    pub fn new(address: Address, first: Status) -> Self {
        Self {
            address,
            rates: Rates::between(&first, &first),
            error: None,
            is_paused: false,
            table: TableState::new().with_selected(0),
            last: first,
            open: HashSet::new(),
            all: false,
        }
    }

    /// Takes the next sample. The selected VM stays selected in its new place.
    pub fn update(&mut self, status: Status) {
        self.error = None;
        if self.is_paused {
            return;
        }
        let chosen = self.chosen();
        self.rates = Rates::between(&self.last, &status);
        self.last = status;
        if let Some(vm) = chosen {
            self.choose(&vm);
        }
    }

    /// Records that the service did not answer.
    pub fn fail(&mut self, error: &impl fmt::Display) {
        self.error = Some(error.to_string());
    }

    /// The lines, from the top.
    pub fn lines(&self) -> Vec<Line<'_>> {
        let mut lines = Vec::new();
        for vm in &self.rates.vms {
            lines.push(Line::Vm(vm));
            if self.all || self.open.contains(&vm.name) {
                lines.extend(vm.clients.iter().map(|client| Line::Client(vm, client)));
            }
        }
        lines
    }

    /// Handles a key; `true` ends the program.
    pub fn press(&mut self, key: Key) -> bool {
        match key {
            Key::Quit => return true,
            Key::Pause => self.is_paused = !self.is_paused,
            Key::Up => self.step(|line| line.saturating_sub(1)),
            Key::Down => self.step(|line| line.saturating_add(1)),
            Key::Clients => {
                if let Some(vm) = self.chosen() {
                    if !self.open.remove(&vm) {
                        self.open.insert(vm.clone());
                    }
                    self.choose(&vm);
                }
            }
            Key::AllClients => {
                let chosen = self.chosen();
                self.all = !self.all;
                self.open.clear();
                if let Some(vm) = chosen {
                    self.choose(&vm);
                }
            }
        }
        false
    }

    fn step(&mut self, to: impl Fn(usize) -> usize) {
        let last = self.lines().len().saturating_sub(1);
        let line = to(self.table.selected().unwrap_or(0));
        self.table.select(Some(line.min(last)));
    }

    /// The name of the selected VM, or of the VM of the selected client.
    fn chosen(&self) -> Option<String> {
        let line = self.table.selected()?;
        self.lines().get(line).map(|line| line.vm().to_owned())
    }

    fn choose(&mut self, vm: &str) {
        let is_it = |line: &Line<'_>| matches!(line, Line::Vm(other) if other.name == vm);
        let line = self.lines().iter().position(is_it);
        self.table.select(Some(line.unwrap_or(0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rates::tests::status;

    fn state() -> State {
        let address = "127.0.0.1:9400".parse().unwrap();
        let mut state = State::new(address, status(10.0));
        state.update(status(11.0));
        state
    }

    fn lines(state: &State) -> Vec<String> {
        let lines = state.lines();
        let lines = lines.iter().map(|line| match line {
            Line::Vm(vm) => vm.name.clone(),
            Line::Client(vm, client) => format!("{}/{}", vm.name, client.client),
        });
        lines.collect()
    }

    #[test]
    fn clients_are_shown_by_vm_or_all() {
        let mut state = state();
        // It was selected before it had a share, and is the second one now.
        assert_eq!(state.chosen().as_deref(), Some("a"));
        assert_eq!(lines(&state), ["b", "a"]);
        state.press(Key::Clients);
        assert_eq!(lines(&state), ["b", "a", "a/7"]);
        state.press(Key::Down);
        state.press(Key::Down);
        assert_eq!(state.table.selected(), Some(2));
        state.press(Key::Clients);
        assert_eq!(lines(&state), ["b", "a"]);
        state.press(Key::AllClients);
        assert_eq!(lines(&state), ["b", "b/7", "a", "a/7"]);
        assert_eq!(state.chosen().as_deref(), Some("a"));
        state.press(Key::AllClients);
        assert_eq!(lines(&state), ["b", "a"]);
        assert!(state.press(Key::Quit));
    }

    #[test]
    fn nothing_changes_while_it_is_paused_and_nothing_is_lost() {
        let mut state = state();
        state.press(Key::Pause);
        let before = state.rates.clone();
        state.update(status(20.0));
        assert_eq!(state.rates, before);
        state.press(Key::Pause);
        state.fail(&"no device process");
        assert!(state.error.is_some());
        state.update(status(21.0));
        assert_eq!(state.rates.interval_seconds, 10.0);
        assert_eq!(state.error, None);
    }

    #[test]
    fn keys_choose_nothing_once_all_vms_are_gone() {
        let mut state = state();
        state.press(Key::Down);
        state.update(Status {
            uptime_seconds: 30.0,
            ..Status::default()
        });
        assert!(state.lines().is_empty());
        for key in [Key::Up, Key::Down, Key::Clients, Key::AllClients] {
            assert!(!state.press(key));
        }
    }
}
