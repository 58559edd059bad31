//! How commands print: for people on a terminal, for other programs into a pipe.

use std::env;
use std::io::{self, IsTerminal as _};

use clap::{Args, ValueEnum};

use crate::view::Tone;

/// What to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people on a terminal, lines with tabs in a pipe.
    Text,
    /// JSON.
    Json,
}

/// Whether to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How to print.
#[derive(Clone, Debug, Args)]
pub(crate) struct StyleArguments {
    /// Whether to use colour.
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    pub color: When,
}

/// How to print, decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    /// Whether a person looks on: tables are aligned then, and else separated by tabs.
    pub terminal: bool,
    /// Whether to use colour.
    pub color: bool,
}

impl StyleArguments {
    /// Looks at the terminal and at NO_COLOR (<https://no-color.org>: any value but an empty one).
    pub(crate) fn decide(&self) -> Style {
        let terminal = io::stdout().is_terminal();
        let forbidden = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Style {
            terminal,
            color: match self.color {
                When::Auto => terminal && !forbidden,
                When::Always => true,
                When::Never => false,
            },
        }
    }
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A text with its meaning.
    pub(crate) fn new(text: impl Into<String>, tone: Tone) -> Self {
        let text: String = text.into();
        Self { text, tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

impl Style {
    /// A text in the colour of its meaning. Control characters do not reach the terminal: identities of
    /// elections are what applications wrote.
    pub(crate) fn paint(self, text: &str, tone: Tone) -> String {
        let text: String = text
            .chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
        let code = match tone {
            _ if !self.color => return text,
            Tone::Plain => return text,
            Tone::Good => "32",
            Tone::Busy => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    /// Rows in columns; `indent` goes before each row on a terminal. An empty cell is `-`.
    pub(crate) fn table(self, indent: &str, rows: &[Vec<Cell>]) -> Vec<String> {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count().max(1)).max()
        };
        let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
        let line = |row: &Vec<Cell>| {
            let cells = row.iter().enumerate().map(|(column, cell)| {
                let text = if cell.text.is_empty() {
                    "-"
                } else {
                    &cell.text
                };
                let painted = self.paint(text, cell.tone);
                if !self.terminal || column + 1 == row.len() {
                    return painted;
                }
                let gap = widths[column].saturating_sub(text.chars().count());
                format!("{painted}{:gap$}", "")
            });
            let cells: Vec<String> = cells.collect();
            if self.terminal {
                format!("{indent}{}", cells.join("  "))
            } else {
                cells.join("\t")
            }
        };
        rows.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<Cell>> {
        vec![
            vec!["NAME".into(), "STATE".into(), "NOTE".into()],
            vec!["a-long-name".into(), Cell::new("ok", Tone::Good), "".into()],
            vec!["b".into(), Cell::new("bad\x1b[2J", Tone::Bad), "x y".into()],
        ]
    }

    #[test]
    fn a_pipe_gets_tabs_and_no_colour() {
        let style = Style {
            terminal: false,
            color: false,
        };
        let lines = style.table("  ", &rows());
        assert_eq!(lines[1], "a-long-name\tok\t-");
        assert_eq!(lines[2], "b\tbad\u{fffd}[2J\tx y");
    }

    #[test]
    fn a_terminal_gets_columns_and_colour() {
        let style = Style {
            terminal: true,
            color: true,
        };
        let lines = style.table("  ", &rows());
        assert_eq!(lines[0], "  NAME         STATE    NOTE");
        assert_eq!(lines[1], "  a-long-name  \x1b[32mok\x1b[0m       -");
        assert!(
            lines[2].contains("\x1b[31mbad\u{fffd}[2J\x1b[0m"),
            "{}",
            lines[2]
        );
    }
}
