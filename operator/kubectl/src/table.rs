//! Columns of text, as kubectl prints them.

use std::fmt;

/// Spaces between columns, as kubectl has them.
const GAP: usize = 3;

/// A heading and rows of as many cells.
#[derive(Clone, Debug)]
pub(crate) struct Table<const COLUMNS: usize> {
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(crate) fn new(heading: [&str; COLUMNS]) -> Self {
        Self {
            rows: vec![heading.map(str::to_owned)],
        }
    }

    pub(crate) fn push(&mut self, row: [String; COLUMNS]) {
        self.rows.push(row);
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    }
}

impl<const COLUMNS: usize> fmt::Display for Table<COLUMNS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                line.push_str(cell);
                let padding = self.width(column) + GAP - cell.chars().count();
                line.push_str(&" ".repeat(padding));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_in_characters() {
        let mut table = Table::new(["A", "P99(µs)", "C"]);
        table.push(["long cell".to_owned(), "1".to_owned(), String::new()]);
        assert_eq!(
            table.to_string(),
            "A           P99(µs)   C\nlong cell   1\n"
        );
    }
}
