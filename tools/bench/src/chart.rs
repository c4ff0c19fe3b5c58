//! Bars, as SVG: one group for each row, one bar for each store, the length of its median relative
//! to the best of the row.
//!
//! A row spans decades between stores, so what is drawn is the logarithm: a bar loses a tenth of
//! the width with each halving. The median is written beside each bar.

use std::fmt::Write as _;

use crate::result::{Cell, RowResult};

const WIDTH: usize = 760;
/// Where bars begin: left of it stand the names of the stores.
const LEFT: usize = 100;
const BAR_MAX: usize = 420;
const BAR: usize = 16;
const GAP: usize = 4;
const TITLE: usize = 26;
/// By the position of the store in the row; the first is ours.
const COLORS: [&str; 6] = [
    "#1f6feb", "#8b949e", "#a0a7af", "#b5bbc2", "#c9ced3", "#dde0e4",
];

/// The rows as one picture. Rows without a figure are left out.
pub fn bars(title: &str, rows: &[&RowResult]) -> String {
    let mut body = String::new();
    let mut y = 34;
    for row in rows {
        let medians: Vec<(&Cell, f64)> = row
            .cells
            .iter()
            .filter_map(|cell| Some((cell, cell.spread()?.median)))
            .filter(|(_, median)| *median > 0.0)
            .collect();
        let better = |median: f64| {
            if row.unit.is_more_better() {
                median
            } else {
                1.0 / median
            }
        };
        let best = medians
            .iter()
            .map(|(_, median)| better(*median))
            .fold(0.0, f64::max);
        if medians.is_empty() {
            continue;
        }
        let _ = writeln!(
            body,
            r#"<text x="10" y="{}" font-weight="bold">{}</text>"#,
            y + 16,
            escaped(&row.name)
        );
        y += TITLE;
        for (cell, median) in medians {
            let column = row.cells.iter().position(|other| std::ptr::eq(other, cell));
            let color = COLORS[column.unwrap_or(0).min(COLORS.len() - 1)];
            let part = 1.0 + (better(median) / best).log2() / 10.0;
            let length = (part.max(0.01) * BAR_MAX as f64) as usize;
            let base = y + BAR - 4;
            let _ = writeln!(
                body,
                r#"<text x="{}" y="{base}" text-anchor="end">{}</text><rect x="{LEFT}" y="{y}" width="{length}" height="{BAR}" fill="{color}"/><text x="{}" y="{base}">{}</text>"#,
                LEFT - 6,
                escaped(&cell.contestant),
                LEFT + length + 6,
                escaped(&row.unit.shown(median)),
            );
            y += BAR + GAP;
        }
        y += GAP;
    }
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="10" y="20" font-size="14">{title} (longer is better; a tenth of the width is a factor of two)</text>
{body}</svg>
"##,
        height = y + 10,
        title = escaped(title),
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Unit;
    use crate::table::tests::run;

    fn lengths(svg: &str) -> Vec<usize> {
        let bars = svg.lines().filter(|line| line.contains("height=\"16\""));
        let length = |line: &str| {
            let at = line.find("width=\"").unwrap() + 7;
            let text = &line[at..];
            text[..text.find('"').unwrap()].parse().unwrap()
        };
        bars.map(length).collect()
    }

    #[test]
    fn the_best_bar_is_the_longest_and_half_is_a_tenth_shorter() {
        let mut run = run();
        // Medians of 200 and 100; the third is void.
        let svg = bars("a < b", &[&run.rows[0]]);
        assert_eq!(lengths(&svg), [420, 378]);
        assert!(svg.contains("a &lt; b") && svg.contains("200 /s"));
        run.rows[0].unit = Unit::Nanoseconds;
        assert_eq!(lengths(&bars("", &[&run.rows[0]])), [378, 420]);
    }
}
