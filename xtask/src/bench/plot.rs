//! A plot of instructions against the number of scatter entries.

use super::record::Row;
use std::fmt::Write as _;

/// The size of the picture, and the margins around the curves, in SVG units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 124.0;
const TOP: f64 = 52.0;

const TITLE: &str = "Instructions to configure an mkey over a list";
const BOTTOM: f64 = 48.0;

/// The sides (library, libmlx5, bare copy) that are drawn: name in rows, label, colour.
const SIGNS: [(&str, &str, &str); 3] = [
    ("ours", "ours", "#0b6e4f"),
    ("libmlx5_stripped", "libmlx5, stripped", "#b3402a"),
    ("copy", "bare copy", "#777777"),
];

/// Returns the points of one side: number of entries, instructions.
fn points(rows: &[Row], side: &str) -> Vec<(f64, f64)> {
    let entries = |row: &Row| row.work.strip_prefix("entries").and_then(|count| count.parse().ok());
    rows.iter().filter_map(|row| Some((entries(row)?, row.count(side)?))).collect()
}

/// Returns the picture as SVG: the curves of all sides.
pub(super) fn svg(rows: &[Row]) -> Result<String, String> {
    let curves = SIGNS.map(|(side, ..)| points(rows, side));
    let all = || curves.iter().flatten();
    let (right, highest) =
        all().fold((0.0_f64, 0.0_f64), |(right, top), (x, y)| (right.max(*x), top.max(*y)));
    if right < 2.0 || highest <= 0.0 {
        return Err("nothing was counted for the plot".into());
    }
    let step = if highest > 600.0 { 200.0 } else { 50.0 };
    let top = (highest / step).ceil() * step;
    let x = |entries: f64| LEFT + (entries - 1.0) / (right - 1.0) * (WIDTH - LEFT - RIGHT);
    let y = |count: f64| HEIGHT - BOTTOM - count / top * (HEIGHT - TOP - BOTTOM);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>{TITLE}</title>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\" font-weight=\"bold\">{TITLE}</text>\n"
    );
    let mut line = |words: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{words}");
    };
    let (from, to) = (x(1.0), x(right));
    let mut count = 0.0;
    while count <= top {
        let (at, middle) = (y(count), y(count) + 4.0);
        line(format_args!("<path d=\"M{from:.1} {at:.1}H{to:.1}\" stroke=\"#dddddd\"/>"));
        line(format_args!(
            "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{count}</text>",
            from - 8.0
        ));
        count += step;
    }
    let foot = y(0.0) + 18.0;
    let ticks = (4..=right as u32).step_by(4).map(f64::from);
    for entries in std::iter::once(1.0).chain(ticks) {
        let at = x(entries);
        line(format_args!("<text x=\"{at:.1}\" y=\"{foot:.1}\" text-anchor=\"middle\">{entries}</text>"));
    }
    line(format_args!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">scatter entries (doorbell for each request, \
         {})</text>",
        (from + to) / 2.0,
        HEIGHT - 8.0,
        rows.first().map_or("", |row| row.arch.as_str()),
    ));
    line(format_args!(
        "<text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">instructions for each \
         request</text>",
        (y(0.0) + y(top)) / 2.0
    ));
    for (curve, (_, label, colour)) in curves.iter().zip(SIGNS) {
        let Some((last_x, last_y)) = curve.last() else { continue };
        let path: Vec<String> = curve.iter().map(|(a, b)| format!("{:.1},{:.1}", x(*a), y(*b))).collect();
        line(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        ));
        line(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{label}</text>",
            x(*last_x) + 6.0,
            y(*last_y) + 4.0
        ));
    }
    line(format_args!("</svg>"));
    Ok(text)
}

/// Returns the slope of each side: instructions for each further entry. Only multiples of four entries count,
/// because a WQEBB has room for four entries.
pub(super) fn slopes(rows: &[Row]) -> Result<String, String> {
    let mut text = String::new();
    for (side, name, _) in SIGNS {
        let whole: Vec<(f64, f64)> =
            points(rows, side).into_iter().filter(|(entries, _)| entries % 4.0 == 0.0).collect();
        let (Some((x0, y0)), Some((x1, y1))) = (whole.first(), whole.last()) else {
            return Err("too few points".into());
        };
        let slope = (y1 - y0) / (x1 - x0);
        let _ = writeln!(text, "{name}: {slope:.1} instructions for each entry, from {x0} to {x1}");
    }
    Ok(text)
}
