//! Rows of cells as aligned lines of text.
//!
//! A column is as wide as its widest cell, with two exceptions:
//!
//! - Where there is a width to fit, as on a terminal, the widest columns of text give way until the line fits, and what
//!   does not fit its column ends with the mark `…`. Numbers are not cut, unless there is no room for anything else.
//! - Where there is none, a cell of more than [`PADDED_MAX`] columns does not widen the other rows. It stays whole, and
//!   what stands right of it in its row moves.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What a cell that is cut ends with.
const MARK: char = '…';
/// Up to how many columns of the terminal a cell widens its column, where there is no width to fit.
const PADDED_MAX: usize = 60;
/// A column of text does not give way below this.
const TEXT_MIN: usize = 8;
/// Between two columns.
const GAP: usize = 2;

/// The widths of the columns of a table. They grow as rows come.
pub(crate) struct Layout {
    /// The width to fit, if there is one.
    room: Option<usize>,
    /// The widest content of each column so far.
    widest: Vec<usize>,
    /// Whether each column has numbers.
    numeric: Vec<bool>,
}

impl Layout {
    pub(crate) fn new(room: Option<usize>, headers: &[String]) -> Layout {
        Layout {
            room,
            widest: headers.iter().map(|header| header.width()).collect(),
            numeric: vec![false; headers.len()],
        }
    }

    /// Says which columns have numbers.
    pub(crate) fn set_numeric(&mut self, numeric: Vec<bool>) {
        self.numeric = numeric;
    }

    /// Makes room for the cells of a row.
    pub(crate) fn measure(&mut self, cells: &[String]) {
        let padded_max = self.room.unwrap_or(PADDED_MAX);
        for (widest, cell) in self.widest.iter_mut().zip(cells) {
            let width = cell.width();
            if width <= padded_max || self.room.is_some() {
                *widest = (*widest).max(width.min(padded_max));
            }
        }
    }

    /// The width of each column.
    pub(crate) fn widths(&self) -> Vec<usize> {
        let mut widths = self.widest.clone();
        let Some(room) = self.room else {
            return widths;
        };
        let gaps = GAP * widths.len().saturating_sub(1);
        loop {
            let used = widths.iter().sum::<usize>() + gaps;
            let can_give = |column: &usize| !self.numeric[*column] && widths[*column] > TEXT_MIN;
            let columns = (0..widths.len()).filter(can_give);
            match columns.max_by_key(|column| widths[*column]) {
                Some(widest) if used > room => widths[widest] -= 1,
                _ => return widths,
            }
        }
    }

    /// A line of cells, without spaces at its end.
    pub(crate) fn line(&self, widths: &[usize], cells: &[String]) -> String {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let width = widths[column];
            let shown = match self.room {
                Some(_) => cut(cell, width),
                None => cell.clone(),
            };
            let padding = " ".repeat(width.saturating_sub(shown.width()));
            if self.numeric[column] {
                line.push_str(&padding);
                line.push_str(&shown);
            } else {
                line.push_str(&shown);
                line.push_str(&padding);
            }
            line.push_str(&" ".repeat(GAP));
        }
        line.truncate(line.trim_end().len());
        match self.room {
            Some(room) => cut(&line, room),
            None => line,
        }
    }
}

/// A text in so many columns of a terminal, with a mark at its end if something is missing.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut shown = String::new();
    let mut left = width.saturating_sub(1);
    for c in text.chars() {
        let Some(rest) = left.checked_sub(c.width().unwrap_or(0)) else {
            break;
        };
        left = rest;
        shown.push(c);
    }
    if width > 0 {
        shown.push(MARK);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(room: Option<usize>, rows: &[&[&str]]) -> Vec<String> {
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|cell| (*cell).to_owned()).collect())
            .collect();
        let mut layout = Layout::new(room, &rows[0]);
        layout.set_numeric(vec![false, false, true]);
        rows[1..].iter().for_each(|row| layout.measure(row));
        let widths = layout.widths();
        rows.iter().map(|row| layout.line(&widths, row)).collect()
    }

    #[test]
    fn the_widest_column_gives_way() {
        let long = "x".repeat(100);
        let shown = lines(
            Some(30),
            &[
                &["KEY", "VALUE", "AT"],
                &["k", "short", "7"],
                &["key", &long, "12345"],
            ],
        );
        assert_eq!(
            shown,
            [
                "KEY  VALUE                  AT",
                "k    short                   7",
                "key  xxxxxxxxxxxxxxxxx…  12345"
            ]
        );
    }

    #[test]
    fn wide_characters_count_as_two() {
        let shown = lines(
            Some(20),
            &[&["KEY", "VALUE", "AT"], &["日本語日本語日本語", "v", "7"]],
        );
        assert_eq!(shown[1], "日本語日…  v       7");
        assert!(shown.iter().all(|line| line.width() <= 20), "{shown:?}");
        assert_eq!(cut("日本", 3), "日…");
        assert_eq!(cut("日本", 2), "…");
        assert_eq!(cut("日本", 0), "");
    }

    /// A pipe gets everything, and not a thousand rows as wide as the longest.
    #[test]
    fn without_a_width_a_long_cell_is_whole_and_moves_its_own_row() {
        let long = "x".repeat(PADDED_MAX + 1);
        let shown = lines(
            None,
            &[
                &["KEY", "VALUE", "AT"],
                &["k", "short", "7"],
                &["key", &long, "12345"],
            ],
        );
        assert_eq!(shown[1], "k    short      7");
        assert_eq!(shown[2], format!("key  {long}  12345"));
    }

    #[test]
    fn a_terminal_too_narrow_for_the_numbers_has_no_line_that_wraps() {
        let shown = lines(Some(6), &[&["KEY", "VALUE", "AT"], &["k", "v", "123456"]]);
        assert_eq!(shown, ["KEY  …", "k    …"]);
    }
}
