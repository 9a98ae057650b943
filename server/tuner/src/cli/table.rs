//! Tables for people.

use std::io::{self, Write};

use tunedweb_tuning::KeyReport;

use crate::tuner::{Preview, PreviewStep};

/// What was done with each key.
pub(super) fn keys(out: &mut impl Write, keys: &[KeyReport]) -> io::Result<()> {
    let rows = keys.iter().map(|key| {
        let state = format!("{:?}", key.state);
        [
            &key.name,
            &key.baseline,
            &key.found,
            &key.wanted,
            &state,
            &key.reason,
        ]
        .map(|text| cell(text))
    });
    print(
        out,
        ["KEY", "BEFORE", "NOW", "WANTED", "STATE", "REASON"],
        &rows.collect::<Vec<_>>(),
    )
}

/// What would be done with each key.
pub(super) fn previews(out: &mut impl Write, previews: &[Preview]) -> io::Result<()> {
    let rows = previews.iter().map(|preview| {
        let class = format!("{} ({})", preview.class.letter(), preview.class.way());
        let step = step_word(preview.step).to_owned();
        [
            &preview.name,
            &preview.current,
            &preview.would_be,
            &step,
            &class,
            &preview.reason,
        ]
        .map(|text| cell(text))
    });
    print(
        out,
        ["KEY", "NOW", "WOULD BE", "STEP", "CLASS", "REASON"],
        &rows.collect::<Vec<_>>(),
    )
}

/// The step in a word.
pub(super) fn step_word(step: PreviewStep) -> &'static str {
    match step {
        PreviewStep::Write => "write",
        PreviewStep::Keep => "keep",
        PreviewStep::Refuse => "refuse",
    }
}

/// An empty cell would be taken for a missing column.
fn cell(text: &str) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text.to_owned()
    }
}

fn print<const N: usize>(
    out: &mut impl Write,
    head: [&str; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let mut widths = head.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let lines = std::iter::once(head.map(str::to_owned)).chain(rows.iter().cloned());
    for line in lines {
        let cells = line
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tunedweb_tuning::KeyState;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_no_cell_is_empty() {
        let report = KeyReport {
            name: "vm.max_map_count".to_owned(),
            wanted: "262144".to_owned(),
            found: "262144".to_owned(),
            baseline: "65530".to_owned(),
            state: KeyState::Applied,
            owners: vec![],
            reason: String::new(),
        };
        let mut text = Vec::new();
        keys(&mut text, &[report]).expect("memory takes it");
        assert_eq!(
            String::from_utf8_lossy(&text),
            "KEY               BEFORE  NOW     WANTED  STATE    REASON\n\
             vm.max_map_count  65530   262144  262144  Applied  -\n"
        );
    }
}
