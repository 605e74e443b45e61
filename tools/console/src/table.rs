//! Tables of text.

/// Lines of cells in columns that are as wide as their widest cells, with two spaces between them. Cells of the columns
/// in `right` end at the same place. Lines do not end with spaces.
///
/// # Panics
/// If a row is longer than the first one.
pub fn aligned(rows: &[Vec<String>], right: &[usize]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let lines = rows.iter().map(|row| {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if right.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cells() {
        let rows = [["id", "share"], ["été", "5 %"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(aligned(&rows, &[]), ["id   share", "été  5 %"]);
        assert_eq!(aligned(&rows, &[1]), ["id   share", "été    5 %"]);
    }
}
