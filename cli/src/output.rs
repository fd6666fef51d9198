//! How answers look on a terminal: plain columns, sizes and ages in words, colour only where it helps.

use std::io::{IsTerminal, Write};

use serde::Serialize;
use tidemark_domain::{Fault, Timestamp};

/// Prints `value` as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Fault> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Fault::permanent("output.json", format!("the answer cannot be written as JSON: {error}")))?;
    line(&text);
    Ok(())
}

/// Prints a line. A reader that has gone away (`| head`) is not an error.
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Prints columns under their titles, each as wide as its widest cell.
pub(crate) fn table(titles: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([titles.get(column).map_or(0, |title| title.len())]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let print = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        line(padded.collect::<Vec<_>>().join("  ").trim_end());
    };
    print(&titles.iter().map(|title| (*title).to_owned()).collect::<Vec<_>>());
    rows.iter().for_each(|row| print(row));
}

/// One line on a terminal that says how far long work has come. It goes away in the end.
pub(crate) struct Progress {
    watched: bool,
}

impl Progress {
    /// Shown to people only: not into a pipe, and not beside JSON.
    pub(crate) fn new(json: bool) -> Self {
        Self { watched: std::io::stderr().is_terminal() && !json }
    }

    /// Does anybody see it?
    pub(crate) fn is_watched(&self) -> bool {
        self.watched
    }

    /// Says how far it is now.
    pub(crate) fn say(&self, text: &str) {
        if self.watched {
            let _ = write!(std::io::stderr().lock(), "\r\u{1b}[K{text}");
            let _ = std::io::stderr().flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.say("");
    }
}

/// `word` in `colour` on a terminal, plain elsewhere.
pub(crate) fn coloured(word: &str, colour: Colour) -> String {
    if !std::io::stdout().is_terminal() {
        return word.to_owned();
    }
    let code = match colour {
        Colour::Good => "32",
        Colour::Odd => "33",
        Colour::Bad => "31",
        Colour::Dim => "2",
    };
    format!("\u{1b}[{code}m{word}\u{1b}[0m")
}

/// What a colour says.
#[derive(Clone, Copy)]
pub(crate) enum Colour {
    Good,
    Odd,
    Bad,
    Dim,
}

/// `1.4 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `3 min ago`, `in 20 s`.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    if then > now {
        return format!("in {}", span_s(then.since_ms(now) / 1000));
    }
    match now.since_ms(then) / 1000 {
        0..=1 => "just now".into(),
        seconds => format!("{} ago", span_s(seconds)),
    }
}

/// When it is due: `in 20 s`, or `on request` for what is never due by itself.
pub(crate) fn due(then: Timestamp, now: Timestamp) -> String {
    if then == Timestamp::never() { "on request".into() } else { age(then, now) }
}

/// `3 min`.
pub(crate) fn span_s(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// `1 change`, `2 changes`.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_said_in_words() {
        assert_eq!([size(0), size(1023), size(1536), size(5 << 30)].join(","), "0 B,1023 B,1.5 KiB,5.0 GiB");
        let now = Timestamp::from_millis(1_000_000_000);
        assert_eq!(age(now, now), "just now");
        assert_eq!(age(now.plus_ms(-180_000), now), "3 min ago");
        assert_eq!(age(now.plus_ms(20_000), now), "in 20 s");
        assert_eq!((due(now.plus_ms(20_000), now).as_str(), due(Timestamp::never(), now).as_str()), ("in 20 s", "on request"));
    }
}
