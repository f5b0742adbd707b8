//! The body of a large page, written piece by piece while the client reads it.
//!
//! A blocking thread writes, and waits while the client does not read, so a reader costs the memory
//! of a few pieces. A client that stops reading, or reads for too long, is disconnected. Otherwise
//! it would occupy the thread, and keep in memory the records that were published when it
//! connected. The body of a disconnected client ends with an error, so that no client takes a part
//! of the page for the whole page.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::half_core::{HalfCore, HalfCoreTurn};
use futures::stream::{self, Stream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout_at};

/// Size of a piece, in octets.
const PIECE: usize = 16 << 10;
/// The time that the client has to read a piece.
const PIECE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that the client has to read the whole page.
const TIMEOUT: Duration = Duration::from_mins(5);

/// The page ended before it was complete.
#[derive(Debug, thiserror::Error)]
#[error("the page is incomplete")]
pub(super) struct Incomplete;

/// A message from the writer to the body.
enum PieceMessage {
    Piece(Bytes),
    /// The page is complete.
    End,
}

/// The body of the page that `write` writes. `permit` is held until both the writer and the reader
/// have ended.
pub(super) fn body(
    share: Arc<HalfCore>,
    permit: OwnedSemaphorePermit,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Incomplete>> + Send + 'static {
    let permit = Arc::new(permit);
    // One piece waits for the client while the next is written.
    let (sender, receiver) = mpsc::channel(1);

    let writers_permit = Arc::clone(&permit);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let _permit = writers_permit;
        let mut pieces = Pieces::new(&share, sender, runtime);
        let written = write(&mut pieces).and_then(|()| pieces.finish());
        if let Err(error) = written {
            tracing::debug!(%error, "a page could not be sent completely");
        }
    });

    let reader = PieceReader {
        receiver,
        is_broken: false,
        _permit: permit,
    };
    stream::unfold(reader, |mut reader| async move {
        Some((reader.next().await?, reader))
    })
}

/// The reading end of the body.
struct PieceReader {
    receiver: mpsc::Receiver<PieceMessage>,
    /// Whether [`Incomplete`] was returned, after which nothing follows.
    is_broken: bool,
    _permit: Arc<OwnedSemaphorePermit>,
}

impl PieceReader {
    async fn next(&mut self) -> Option<Result<Bytes, Incomplete>> {
        if self.is_broken {
            return None;
        }
        match self.receiver.recv().await {
            Some(PieceMessage::Piece(piece)) => Some(Ok(piece)),
            Some(PieceMessage::End) => None,
            // The writer ended without the last message. If the body ended normally, the client
            // would take the pieces received so far for the whole page.
            None => {
                self.is_broken = true;
                Some(Err(Incomplete))
            }
        }
    }
}

/// Divides the page into pieces. The channel to the reader has room for one piece, so each piece is
/// sent when the reader has taken the previous one.
struct Pieces<'a> {
    /// The half of a CPU core that this page shares with other pages. They use it in turns.
    share: &'a HalfCore,
    /// The turn in which the current piece is made; `None` while a piece waits for the client.
    turn: Option<HalfCoreTurn<'a>>,
    piece: Vec<u8>,
    sender: mpsc::Sender<PieceMessage>,
    runtime: Handle,
    /// The time by which the whole page must be sent.
    deadline: Instant,
}

impl<'a> Pieces<'a> {
    fn new(share: &'a HalfCore, sender: mpsc::Sender<PieceMessage>, runtime: Handle) -> Self {
        let turn = Some(share.turn());
        let piece = Vec::with_capacity(PIECE);
        Self {
            share,
            turn,
            piece,
            sender,
            runtime,
            deadline: Instant::now() + TIMEOUT,
        }
    }

    fn send_piece(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        self.send(PieceMessage::Piece(piece.into()))
    }

    /// Ends the turn, sends a message, and waits for the next turn. A client that does not read
    /// must not keep other pages waiting.
    fn send(&mut self, message: PieceMessage) -> io::Result<()> {
        self.turn = None;
        let deadline = self.deadline.min(Instant::now() + PIECE_TIMEOUT);
        let sent = self
            .runtime
            .block_on(timeout_at(deadline, self.sender.send(message)));
        sent.map_err(|_| io::ErrorKind::TimedOut)?
            .map_err(|_| io::ErrorKind::BrokenPipe)?;

        self.turn = Some(self.share.turn());
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.send_piece()?;
        self.send(PieceMessage::End)
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let room = PIECE - self.piece.len();
        let taken = octets.get(..room).unwrap_or(octets);
        self.piece.extend_from_slice(taken);
        if self.piece.len() == PIECE {
            self.send_piece()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::StreamExt as _;
    use tokio::sync::Semaphore;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// Far more octets than the pieces between writer and reader hold.
    const LONG: usize = 64 << 20;

    fn permits() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(1))
    }

    /// The body of a page of `length` octets, and the number of octets written so far.
    fn page(
        permits: &Arc<Semaphore>,
        length: usize,
    ) -> (
        impl Stream<Item = Result<Bytes, Incomplete>> + use<>,
        Arc<AtomicUsize>,
    ) {
        let permit = Arc::clone(permits).try_acquire_owned().unwrap();
        let written = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&written);
        let body = body(Arc::default(), permit, move |out| {
            for _ in 0..length / 64 {
                out.write_all(&[b'x'; 64])?;
                count.fetch_add(64, Ordering::SeqCst);
            }
            Ok(())
        });
        (body, written)
    }

    #[tokio::test]
    async fn page_read_to_its_end_is_whole() {
        let (body, _) = page(&permits(), PIECE * 5 / 2);
        let pieces: Vec<_> = body.map(|piece| piece.unwrap().len()).collect().await;
        assert_eq!(pieces, [PIECE, PIECE, PIECE / 2]);
    }

    #[tokio::test]
    async fn writer_waits_for_reader() {
        let (body, written) = page(&permits(), LONG);
        let mut body = std::pin::pin!(body);
        for piece in 1..10 {
            assert_eq!(body.next().await.unwrap().unwrap().len(), PIECE);
            // One piece is in the channel, one is being sent.
            assert!(written.load(Ordering::SeqCst) <= (piece + 2) * PIECE);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reader_that_stops_is_cut_off() {
        let ended = CancellationToken::new();
        let writer_ended = ended.clone();
        let permit = permits().try_acquire_owned().unwrap();
        let body = body(Arc::default(), permit, move |out| {
            let written = (0..LONG / 64).try_for_each(|_| out.write_all(&[b'x'; 64]));
            writer_ended.cancel();
            written
        });
        let mut body = std::pin::pin!(body);
        assert!(body.next().await.unwrap().is_ok());
        while !ended.is_cancelled() {
            tokio::time::advance(PIECE_TIMEOUT).await;
            std::thread::yield_now();
        }

        let left: Vec<bool> = body.map(|piece| piece.is_ok()).collect().await;
        assert_eq!(
            left,
            [true, false],
            "the page must not end as if it were whole"
        );
    }

    #[tokio::test]
    async fn reader_that_leaves_releases_permit() {
        let permits = permits();
        let (body, written) = page(&permits, LONG);
        assert_eq!(permits.available_permits(), 0);
        drop(body);
        let _permit = permits.acquire().await.unwrap();
        assert!(written.load(Ordering::SeqCst) < LONG);
    }
}
