// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The layout of the screen.

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Layout},
    style::{Color, Modifier, Style},
    text::{Line as Text, Span},
    widgets::{Cell, Paragraph, Row, Table},
};

use super::{
    plain::{self, COLUMNS},
    rates::Vm,
    state::{Line, State},
};

/// The width of the bar of a share.
const BAR: usize = 20;
const KEYS: &str = "q quit  ↑↓ choose  enter clients  c all clients  p pause";

/// Draws the screen.
pub fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(heading(state)), top);
    let widths = COLUMNS.iter().enumerate().map(|(column, (_, width))| {
        let width = *width as u16;
        match column {
            0 => Constraint::Min(width),
            2 => Constraint::Length(width + 1 + BAR as u16),
            _ => Constraint::Length(width),
        }
    });
    let lines = state.lines();
    let table = Table::new(lines.iter().map(row), widths)
        .header(header())
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut table_state = state.table;
    frame.render_stateful_widget(table, middle, &mut table_state);
    state.table = table_state;
    frame.render_widget(Paragraph::new(KEYS).style(Style::new().dim()), bottom);
}

fn heading(state: &State) -> Vec<Text<'static>> {
    let first = Text::from(plain::heading(&state.rates));
    let second = match &state.error {
        Some(error) => {
            let text = format!("{}: {}", state.address, plain::printable(error));
            Text::from(Span::styled(text, Style::new().fg(Color::Red)))
        }
        None if state.is_paused => {
            Text::from(Span::styled("paused", Style::new().fg(Color::Yellow)))
        }
        None => Text::default(),
    };
    vec![first, second]
}

fn header() -> Row<'static> {
    let cells = COLUMNS.iter().enumerate().map(|(column, (name, _))| {
        let text = Text::from(*name);
        Cell::from(text.alignment(alignment(column)))
    });
    Row::new(cells).style(Style::new().bold())
}

fn alignment(column: usize) -> Alignment {
    match column {
        0 | 2 => Alignment::Left,
        _ => Alignment::Right,
    }
}

fn row(line: &Line<'_>) -> Row<'static> {
    let (cells, style) = match line {
        Line::Vm(vm) => (plain::vm_cells(vm), Style::new()),
        Line::Client(_, client) => (plain::client_cells(client), Style::new().dim()),
    };
    let cells = cells.into_iter().enumerate().map(|(column, text)| {
        let text = match (column, line) {
            (2, Line::Vm(vm)) => share(vm, &text),
            _ => Text::from(text),
        };
        Cell::from(text.alignment(alignment(column)))
    });
    Row::new(cells).style(style)
}

/// The share as a bar, relative to all GPUs that the VM may use, and as a number, relative to one GPU.
fn share(vm: &Vm, text: &str) -> Text<'static> {
    let whole = vm.gpus.len().max(1) as f64;
    let filled = (vm.gpu_share / whole * BAR as f64).round();
    let filled = (filled.max(0.0) as usize).min(BAR);
    let color = match vm.waiting {
        waiting if waiting > 0.5 => Color::Yellow,
        _ => Color::Green,
    };
    Text::from(vec![
        Span::raw(format!("{text:>6} ")),
        Span::styled("█".repeat(filled), Style::new().fg(color)),
        Span::styled("░".repeat(BAR - filled), Style::new().dim()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::{rates::tests::status, state::Key};
    use ratatui::{Terminal, backend::TestBackend, buffer::Buffer};

    fn text(buffer: &Buffer) -> Vec<String> {
        let area = *buffer.area();
        let line = |y| {
            (0..area.width)
                .map(|x| buffer[(x, y)].symbol())
                .collect::<String>()
        };
        (0..area.height)
            .map(|y| line(y).trim_end().to_owned())
            .collect()
    }

    fn shown(state: &mut State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        text(terminal.backend().buffer())
    }

    fn state() -> State {
        let address = "unix:/run/metrics".parse().unwrap();
        let mut state = State::new(address, status(10.0));
        state.update(status(12.0));
        state
    }

    #[test]
    fn shares_are_bars_and_the_busiest_is_first() {
        let mut state = state();
        let lines = shown(&mut state, 140, 8);
        assert_eq!(lines[0], "virtio-gpgpu 1.2.3, up 0:00, 2 VMs, 2 clients");
        assert!(lines[2].starts_with("VM ") && lines[2].ends_with("WAITING"));
        assert!(lines[3].starts_with("b "), "{lines:#?}");
        // 60 and 30 percent of 20.
        assert!(
            lines[3].contains(&format!(" 60.0% {}░", "█".repeat(12))),
            "{lines:#?}"
        );
        assert!(
            lines[4].contains(&format!(" 30.0% {}░", "█".repeat(6))),
            "{lines:#?}"
        );
        assert!(lines[4].contains("2.0 GiB / 8.0 GiB"), "{lines:#?}");
        assert!(!lines[5].contains("python3"));
        assert!(lines[7].starts_with("q quit"));

        state.press(Key::AllClients);
        let lines = shown(&mut state, 140, 8);
        assert!(lines[4].starts_with("  7 python3\\u{1b}"), "{lines:#?}");
    }

    #[test]
    fn errors_and_pauses_are_said_and_a_small_terminal_is_no_harm() {
        let mut state = state();
        state.press(Key::Pause);
        assert_eq!(shown(&mut state, 140, 8)[1], "paused");
        state.fail(&"Connection refused");
        let lines = shown(&mut state, 140, 8);
        assert_eq!(lines[1], "unix:/run/metrics: Connection refused");
        for (width, height) in [(1, 1), (10, 3), (40, 5)] {
            shown(&mut state, width, height);
        }
    }
}
