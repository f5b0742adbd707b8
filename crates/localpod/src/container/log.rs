//! Copies the output of a container to the console, line by line.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

use crate::console::Console;

/// Maximum length of a line, in octets. Longer lines are split, to limit the memory for one stream.
const LONGEST_LINE: u64 = 8 * 1024;

/// Copies until the stream ends or fails. Octets that are not UTF-8 are replaced.
pub(super) async fn copy(stream: impl AsyncRead + Unpin, name: &'static str, console: Console) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while (&mut reader)
        .take(LONGEST_LINE)
        .read_until(b'\n', &mut line)
        .await
        .is_ok_and(|read| read > 0)
    {
        console.line(
            name,
            String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']),
        );
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_copied() {
        let (console, shown) = Console::kept(false);
        let long = "a".repeat(8 * 1024);
        let input = format!("one\n\r\ntwo\r\n{long}bbb\nlast");
        copy(
            [input.as_bytes(), b" a\xffb"].concat().as_slice(),
            "x",
            console,
        )
        .await;
        let expected = ["one", "", "two", &long, "bbb", "last a\u{fffd}b"];
        let expected = expected
            .map(|line| format!("x         | {line}\n"))
            .concat();
        assert_eq!(shown(), expected);
    }
}
