//! GET requests over HTTP without TLS. An ordinary page has bounds on its size and time. A
//! streaming page has bounds only on its head and on the size of each line.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Number of characters after which the status line is truncated.
const SHOWN: usize = 80;
/// Maximum size of the head of a streaming page, in octets.
const MAX_HEAD: usize = 16 * 1024;
/// Maximum number of octets of the body that [`get_streaming`] reads if the status is not 200. The
/// rest of the body is ignored.
const MAX_ERROR_BODY: u64 = 64 * 1024;

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The status line, without control characters and truncated to 80 characters.
    pub status_line: String,
    /// The status code.
    pub status: u16,
    /// The octets after the head.
    pub body: Vec<u8>,
}

impl Page {
    /// The text for an error: the first line of the body, without control characters and of at most
    /// 200 characters. If that line is empty, the text is the status line.
    pub fn error_line(self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let line = text.lines().next().unwrap_or_default();
        let line: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
        if line.is_empty() {
            self.status_line
        } else {
            line
        }
    }
}

/// A failed request.
#[derive(Debug, Error)]
pub enum GetError {
    /// The target contains a space, a control character or a character that is not ASCII.
    #[error("{0:?} is not a valid path")]
    Target(String),
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The request timed out.
    #[error("no answer within {0:?}")]
    Slow(Duration),
    /// The response, its head or one of its lines was too large.
    #[error("the data has more than {0} bytes")]
    Large(usize),
    /// The response was not HTTP, or had no complete head. The value is the first line.
    #[error("the response is not HTTP, or is incomplete; its first line is {0:?}")]
    NotHttp(String),
}

/// Host and port of a URL `http://HOST:PORT`. The scheme may be missing, and a slash may follow the
/// port. `None` for any other URL.
pub fn authority(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = rest.rsplit_once(':')?;
    let is_host_and_port = !host.is_empty() && port.parse::<u16>().is_ok();
    // The text becomes part of a request. A line break or a path would change the request.
    (is_host_and_port && rest.chars().all(is_in_authority)).then_some(rest)
}

fn is_in_authority(c: char) -> bool {
    c.is_ascii_alphanumeric() || ".-:[]%_".contains(c)
}

/// The request target for `path` with these parameters, percent-encoded. Parameters without a value
/// are left out: the server then uses its defaults.
pub fn request_target(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (key, value) in parameters {
        if !value.is_empty() {
            query.append_pair(key, value);
        }
    }
    format!("{path}?{}", query.finish())
}

/// Gets `target` (a path with its query) from `authority` (`host:port`), within `time` and with at
/// most `size` octets. A response of any status is a [`Page`].
pub async fn get(
    authority: &str,
    target: &str,
    time: Duration,
    size: usize,
) -> Result<Page, GetError> {
    let reply = tokio::time::timeout(time, read_reply(authority, target, size))
        .await
        .map_err(|_| GetError::Slow(time))??;
    parse_page(&reply)
}

async fn read_reply(authority: &str, target: &str, size: usize) -> Result<Vec<u8>, GetError> {
    let stream = send_request(authority, target).await?;
    let mut reply = Vec::new();
    // One octet more than `size` is read, so that a reply that is too large is noticed.
    stream.take(size as u64 + 1).read_to_end(&mut reply).await?;
    if reply.len() > size {
        return Err(GetError::Large(size));
    }
    Ok(reply)
}

/// Connects and sends the request.
async fn send_request(authority: &str, target: &str) -> Result<TcpStream, GetError> {
    if !target.bytes().all(|octet| octet.is_ascii_graphic()) {
        return Err(GetError::Target(target.to_owned()));
    }

    let mut stream = TcpStream::connect(authority).await?;
    // In HTTP/1.0, the response is not chunked, and the server closes the connection after it.
    let request =
        format!("GET {target} HTTP/1.0\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// A page that is read line by line, without a bound on its length.
#[derive(Debug)]
pub struct StreamingPage(BufReader<TcpStream>);

impl StreamingPage {
    /// The next line, without trailing whitespace; `None` at the end of the page. A last line
    /// without a newline is left out, because the connection ended in the middle of it.
    ///
    /// # Errors
    ///
    /// [`GetError`] if the connection breaks, or if the line with its newline is longer than `size`
    /// octets.
    pub async fn line(&mut self, size: usize) -> Result<Option<String>, GetError> {
        let mut line = Vec::new();
        let length = (&mut self.0)
            .take(size as u64 + 1)
            .read_until(b'\n', &mut line)
            .await?;
        // A longer line is an error: if it were cut, the next call would return its rest as a
        // separate line.
        if length > size {
            return Err(GetError::Large(size));
        }

        let is_complete = line.ends_with(b"\n");
        Ok(is_complete.then(|| String::from_utf8_lossy(&line).trim_end().to_owned()))
    }
}

/// Requests a streaming page; `time` is the timeout of the response's head. A response whose status
/// is not 200 is returned as `Ok(Err(page))`; its body must also arrive within `time`.
pub async fn get_streaming(
    authority: &str,
    target: &str,
    time: Duration,
) -> Result<Result<StreamingPage, Page>, GetError> {
    tokio::time::timeout(time, open_stream(authority, target))
        .await
        .map_err(|_| GetError::Slow(time))?
}

async fn open_stream(
    authority: &str,
    target: &str,
) -> Result<Result<StreamingPage, Page>, GetError> {
    let mut stream = BufReader::new(send_request(authority, target).await?);
    let head = read_head(&mut stream).await?;

    let mut page = parse_page(&head)?;
    if page.status == 200 {
        return Ok(Ok(StreamingPage(stream)));
    }
    // The first line of the body says why the status is not 200.
    stream
        .take(MAX_ERROR_BODY)
        .read_to_end(&mut page.body)
        .await?;
    Ok(Err(page))
}

/// Reads up to the empty line after the headers, or to the end of the stream.
async fn read_head(stream: &mut BufReader<TcpStream>) -> Result<Vec<u8>, GetError> {
    let mut head = Vec::new();

    while !head.ends_with(b"\r\n\r\n") {
        let read = (&mut *stream)
            .take(MAX_HEAD as u64)
            .read_until(b'\n', &mut head)
            .await?;
        if head.len() > MAX_HEAD {
            return Err(GetError::Large(MAX_HEAD));
        }
        if read == 0 {
            break;
        }
    }

    Ok(head)
}

fn parse_page(reply: &[u8]) -> Result<Page, GetError> {
    let line = reply
        .split(|octet| matches!(octet, b'\r' | b'\n'))
        .next()
        .unwrap_or_default();
    // The line goes into error texts, so it is short and has no control characters.
    let line = String::from_utf8_lossy(line);
    let status_line: String = line
        .chars()
        .filter(|c| !c.is_control())
        .take(SHOWN)
        .collect();

    let status = status_line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1))
        .and_then(|status| status.parse().ok());

    let end = reply.windows(4).position(|window| window == b"\r\n\r\n");
    match (status, end.and_then(|end| reply.get(end + 4..))) {
        (Some(status), Some(body)) => Ok(Page {
            status_line,
            status,
            body: body.to_vec(),
        }),
        _ => Err(GetError::NotHttp(status_line)),
    }
}
