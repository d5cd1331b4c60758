// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The chart: each row's speed relative to the native one, on a logarithmic scale.

use svg::Document;
use svg::node::element::{Line, Rectangle, Text};

use super::report::{Figure, Results};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 240.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 60.0;
const ROW: f64 = 18.0;
/// The end of the scale. A longer bar ends at the edge, and its number shows its length.
const LOW: f64 = 0.05;
const HIGH: f64 = 20.0;

/// The chart as an SVG file.
pub fn draw(results: &Results) -> String {
    let rows: Vec<(&Figure, f64)> = results
        .rows
        .iter()
        .filter_map(|row| Some((row, row.speed()?)))
        .collect();
    let height = TOP + ROW * rows.len() as f64 + 30.0;
    let mut document = Document::new()
        .set("viewBox", (0.0, 0.0, WIDTH, height))
        .set("font-family", "sans-serif")
        .set("font-size", 12)
        .add(
            Rectangle::new()
                .set("width", WIDTH)
                .set("height", height)
                .set("fill", "white"),
        )
        .add(
            text(
                &format!("{}: speed against native", results.machine.gpu),
                10.0,
                22.0,
            )
            .set("font-size", 15),
        )
        .add(text(
            "times as fast as natively; green meets its goal, red does not, grey has none",
            10.0,
            40.0,
        ));
    for tick in [0.1, 0.5, 1.0, 2.0, 4.0, 10.0] {
        let x = position(tick);
        let (colour, width) = if tick == 1.0 {
            ("black", 1.5)
        } else {
            ("#dddddd", 1.0)
        };
        document = document
            .add(
                Line::new()
                    .set("x1", x)
                    .set("x2", x)
                    .set("y1", TOP - 4.0)
                    .set("y2", height - 24.0)
                    .set("stroke", colour)
                    .set("stroke-width", width),
            )
            .add(text(&tick.to_string(), x, height - 8.0).set("text-anchor", "middle"));
    }
    for (index, (row, speed)) in rows.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let (from, to) = (position(1.0), position(*speed));
        let colour = match row.met {
            Some(true) => "#4a9d5b",
            Some(false) => "#c8503c",
            None => "#9a9a9a",
        };
        document = document
            .add(text(&row.name, LEFT - 8.0, y + 12.0).set("text-anchor", "end"))
            .add(
                Rectangle::new()
                    .set("x", from.min(to))
                    .set("y", y + 2.0)
                    .set("width", (to - from).abs().max(1.0))
                    .set("height", ROW - 5.0)
                    .set("fill", colour),
            )
            .add(text(&format!("{speed:.2}"), WIDTH - 10.0, y + 12.0).set("text-anchor", "end"));
    }
    format!("{document}\n")
}

fn text(words: &str, x: f64, y: f64) -> Text {
    Text::new(words).set("x", x).set("y", y)
}

fn position(speed: f64) -> f64 {
    let part = (speed.clamp(LOW, HIGH) / LOW).ln() / (HIGH / LOW).ln();
    (LEFT + part * (WIDTH - LEFT - RIGHT)).round()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faster_is_further_right_up_to_the_edge() {
        assert!(position(0.5) < position(1.0) && position(1.0) < position(4.0));
        assert_eq!(position(1000.0), position(HIGH));
    }
}
