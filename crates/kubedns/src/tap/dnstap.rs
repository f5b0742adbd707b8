//! Sends answered queries and their responses to a dnstap reader, as protobuf messages in Frame
//! Streams (<https://dnstap.info>).
//!
//! kubedns connects to the reader, and reconnects with growing pauses. Without a connection no
//! queries are copied. A slow reader misses queries; `kubedns_tap_records_total` counts these
//! queries as `dropped`.

mod frames;
mod message;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use skydns::tap::{QueryTap, TapWatch, WatchSettings};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use wire::query_filter::QueryFilter;

use self::frames::{FINISH, READY, START, STOP, append_data_frame, control_frame};
use self::message::MessageEncoder;

/// The pause after the first failure. Each failure doubles the pause, up to `LAST_PAUSE`. After a
/// connection of at least `LAST_PAUSE`, the pauses begin again with `FIRST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_mins(1);
/// Timeout of the connection setup, including the handshake, and of each write.
const READER_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout at shutdown: of the write in progress, and of the STOP handshake.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Approximate maximum size of a write, in octets.
const CHUNK: usize = 64 << 10;

/// Address of a dnstap reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnstapReader {
    /// A unix socket.
    Unix(PathBuf),
    /// `HOST:PORT`
    Tcp(String),
}

/// Invalid address of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unix:///PATH and tcp://HOST:PORT are accepted")]
pub struct DnstapReaderError;

/// `--dnstap`; `None` if the flag is empty, as it is by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnstapOutput(pub Option<DnstapReader>);

impl FromStr for DnstapOutput {
    type Err = DnstapReaderError;

    fn from_str(text: &str) -> Result<Self, DnstapReaderError> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let reader = unix_reader(text).or_else(|| tcp_reader(text));
        reader
            .map(|reader| Self(Some(reader)))
            .ok_or(DnstapReaderError)
    }
}

fn unix_reader(text: &str) -> Option<DnstapReader> {
    let path = text.strip_prefix("unix://")?;
    let is_path = path.starts_with('/') && path.len() > 1;
    is_path.then(|| DnstapReader::Unix(path.into()))
}

fn tcp_reader(text: &str) -> Option<DnstapReader> {
    let address = text.strip_prefix("tcp://")?;
    let (host, port) = address.rsplit_once(':')?;
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    (!host.is_empty() && is_port).then(|| DnstapReader::Tcp(address.to_owned()))
}

impl DnstapReader {
    async fn open_stream(&self) -> std::io::Result<Box<dyn ReaderStream>> {
        Ok(match self {
            Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Self::Tcp(address) => Box::new(TcpStream::connect(address).await?),
        })
    }
}

trait ReaderStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ReaderStream for T {}

/// Failure of a connection.
#[derive(Debug, thiserror::Error)]
enum DnstapError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(
        "the connection with the reader, including its handshake, was not complete within {READER_TIMEOUT:?}"
    )]
    NoHandshake,
    #[error("the reader did not read a message within {READER_TIMEOUT:?}")]
    Slow(#[from] tokio::time::error::Elapsed),
    #[error("the reader does not accept dnstap")]
    Refused,
    #[error("the reader closed the connection")]
    Closed,
    #[error("the reader sent data after the handshake")]
    Unexpected,
    #[error(transparent)]
    Watches(#[from] skydns::tap::TooManyWatches),
}

/// Sends answered queries to the reader until `stop`. Each message contains `version`, which
/// is the name and the version of this server.
pub(crate) async fn run(
    reader: DnstapReader,
    tap: Arc<QueryTap>,
    version: String,
    stop: CancellationToken,
) {
    let encoder = MessageEncoder::new(version);
    let mut pause = FIRST_PAUSE;
    while let Some(connected) = stop.run_until_cancelled(connect(&reader)).await {
        let error = match connected {
            Ok(stream) => {
                tracing::info!(?reader, "dnstap reader connected");
                let since = Instant::now();
                let Err(error) = send_records(stream, &tap, &encoder, &stop).await else {
                    return;
                };
                // Only a long connection resets the pauses. So they also grow if the reader closes
                // each connection immediately.
                if since.elapsed() >= LAST_PAUSE {
                    pause = FIRST_PAUSE;
                }
                error
            }
            Err(error) => error,
        };

        tracing::warn!(
            ?reader,
            error = &error as &dyn std::error::Error,
            ?pause,
            "the connection to the dnstap reader failed, trying again"
        );
        stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Connects to the reader, and negotiates the content type, within `READER_TIMEOUT`.
async fn connect(reader: &DnstapReader) -> Result<Box<dyn ReaderStream>, DnstapError> {
    let connected = timeout(READER_TIMEOUT, shake_hands(reader)).await;
    connected.unwrap_or(Err(DnstapError::NoHandshake))
}

async fn shake_hands(reader: &DnstapReader) -> Result<Box<dyn ReaderStream>, DnstapError> {
    let mut stream = reader.open_stream().await?;
    stream.write_all(&control_frame(READY)).await?;
    if !frames::read_control(&mut stream).await?.accepts() {
        return Err(DnstapError::Refused);
    }
    stream.write_all(&control_frame(START)).await?;
    Ok(stream)
}

/// Sends answered queries until `stop` or an error.
async fn send_records(
    mut stream: Box<dyn ReaderStream>,
    tap: &Arc<QueryTap>,
    encoder: &MessageEncoder,
    stop: &CancellationToken,
) -> Result<(), DnstapError> {
    let mut watch = tap.open_watch(WatchSettings {
        filter: QueryFilter::default(),
        rate: u32::MAX,
        messages: true,
    })?;

    // The reader must not send anything. If it does, or closes its stream, the connection ends.
    let mut unexpected = [0; 64];
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            read = stream.read(&mut unexpected) => {
                let is_closed = read? == 0;
                return Err(if is_closed { DnstapError::Closed } else { DnstapError::Unexpected });
            }
            frames = next_frames(&mut watch, encoder) => {
                let written = timeout(READER_TIMEOUT, stream.write_all(&frames));
                tokio::select! {
                    written = written => written??,
                    // Part of a frame may have been written, so no STOP frame can follow.
                    () = long_stopped(stop) => return Ok(()),
                }
            }
        }
    }

    // Records that still wait in `watch` are not sent. The reader has `STOP_TIMEOUT` to confirm the
    // end.
    let _ = timeout(STOP_TIMEOUT, async {
        stream.write_all(&control_frame(STOP)).await?;
        frames::read_control(&mut stream)
            .await
            .map(|control| control.kind == FINISH)
    })
    .await;
    Ok(())
}

/// Waits until `STOP_TIMEOUT` after `stop`.
async fn long_stopped(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(STOP_TIMEOUT).await;
}

/// The frames of the next records, up to about `CHUNK` octets.
async fn next_frames(watch: &mut TapWatch, encoder: &MessageEncoder) -> Vec<u8> {
    let mut frames = Vec::new();
    let mut next = Some(watch.next_record().await);
    while let Some(record) = next {
        for message in encoder.messages(&record).into_iter().flatten() {
            append_data_frame(&message, &mut frames);
        }

        // Further records wait for the next write.
        next = if frames.len() < CHUNK {
            watch.take_record()
        } else {
            None
        };
    }
    frames
}

#[cfg(test)]
mod tests;
