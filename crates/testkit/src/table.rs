//! Tables of test cases as text.

/// The rows of a table whose cells are separated by `|`. Blank lines, and lines that begin with
/// `#`, are skipped. Panics at a row that does not have `N` cells.
#[track_caller]
pub fn rows<const N: usize>(table: &str) -> Vec<[&str; N]> {
    let lines = table.lines().map(str::trim);
    let rows = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(cells).collect()
}

#[track_caller]
fn cells<const N: usize>(row: &str) -> [&str; N] {
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    cells.try_into().unwrap_or_else(|cells: Vec<&str>| {
        panic!("row with {} cells instead of {N}: {row}", cells.len())
    })
}
