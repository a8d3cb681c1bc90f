//! The body of an answer on its way to the client, with whatever befalls it.

use bytes::{Bytes, BytesMut};
use futures::{Stream, stream};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::watch;

use super::{
    fault::{Cut, CutAt, Fault, RewriteLine, dose},
    link::Resets,
    rules::{Exchange, Number},
};

/// The exchange was broken off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken off as asked")
    }
}

impl std::error::Error for Broken {}

/// The body `upstream` as `exchange` lets it through.
pub(super) fn flow(upstream: Incoming, exchange: Exchange, resets: Resets) -> impl Stream<Item = Result<Bytes, Broken>> + Send {
    let changes = exchange.changes();
    let flow = Flow {
        upstream,
        exchange,
        changes,
        resets,
        held: BytesMut::new(),
        complete: false,
        end: None,
        bytes: 0,
        lines: 0,
        mid_line: false,
        cut_from: None,
    };
    stream::unfold(flow, |mut flow| async move { flow.next().await.map(|piece| (piece, flow)) })
}

struct Flow {
    upstream: Incoming,
    exchange: Exchange,
    changes: watch::Receiver<()>,
    resets: Resets,
    /// Arrived and not passed on.
    held: BytesMut,
    /// Nothing more arrives.
    complete: bool,
    /// Nothing more is passed on: the end is clean or not.
    end: Option<Result<(), Broken>>,
    /// Passed on so far.
    bytes: usize,
    lines: usize,
    mid_line: bool,
    /// The rule that cuts, and what had been passed on when it took hold.
    cut_from: Option<(Number, usize, usize)>,
}

impl Flow {
    /// The next piece to pass on; `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes, Broken>> {
        loop {
            match self.end.take() {
                Some(Ok(())) => return None,
                Some(Err(broken)) => {
                    self.end = Some(Ok(()));
                    return Some(Err(broken));
                }
                None => {}
            }
            // Marked as seen first: a change while the rules are looked at is looked at again.
            self.changes.mark_unchanged();
            let fault = self.exchange.at_body();
            match self.strike(fault).await {
                Struck::Passed(piece) => {
                    if !piece.is_empty() {
                        self.count(&piece);
                        return Some(Ok(piece));
                    }
                }
                Struck::Waiting => {
                    // The sender lives as long as the proxy, whose end ends this.
                    self.changes.changed().await.ok();
                }
                Struck::Hungry if self.complete => self.end = Some(Ok(())),
                Struck::Hungry => self.read().await,
            }
        }
    }

    /// Lets a fault act on what is held.
    async fn strike(&mut self, fault: Option<(Number, Fault)>) -> Struck {
        match fault {
            Some((_, Fault::Stall)) => Struck::Waiting,
            Some((_, Fault::Break)) => self.finish(Err(Broken)),
            Some((_, Fault::End)) => self.finish(Ok(())),
            Some((_, Fault::Reset)) => {
                self.resets.reset();
                Struck::Waiting
            }
            Some((rule, Fault::Inject { line, last })) => {
                if self.mid_line {
                    return self.pass_line();
                }
                self.exchange.done(rule);
                if last {
                    self.end = Some(Ok(()));
                }
                Struck::Passed(Bytes::from(line + "\n"))
            }
            Some((_, Fault::Drip { bytes_per_second })) if !self.held.is_empty() => {
                let (bytes, pause) = dose(bytes_per_second);
                tokio::time::sleep(pause).await;
                Struck::Passed(self.take(bytes))
            }
            Some((_, Fault::RewriteLines(rewrite))) => self.rewrite_line(rewrite.as_ref()),
            Some((rule, Fault::Cut(cut))) => self.cut(rule, cut),
            _ => {
                let all = self.held.len();
                self.pass(all)
            }
        }
    }

    fn finish(&mut self, end: Result<(), Broken>) -> Struck {
        self.end = Some(end);
        Struck::Passed(Bytes::new())
    }

    fn take(&mut self, bytes: usize) -> Bytes {
        self.held.split_to(bytes.min(self.held.len())).freeze()
    }

    fn pass(&mut self, bytes: usize) -> Struck {
        if self.held.is_empty() { Struck::Hungry } else { Struck::Passed(self.take(bytes)) }
    }

    /// What is held of the current line, its end included.
    fn pass_line(&mut self) -> Struck {
        let line = self.line_length().unwrap_or(self.held.len());
        self.pass(line)
    }

    fn line_length(&self) -> Option<usize> {
        self.held.iter().position(|byte| *byte == b'\n').map(|at| at + 1)
    }

    fn rewrite_line(&mut self, rewrite: &RewriteLine) -> Struck {
        if self.mid_line {
            return self.pass_line();
        }
        match self.line_length() {
            Some(length) => {
                let line = self.take(length);
                Struck::Passed(Bytes::from(rewrite(String::from_utf8_lossy(&line).trim_end_matches('\n')) + "\n"))
            }
            None if self.complete => self.pass_line(),
            None => Struck::Hungry,
        }
    }

    fn cut(&mut self, rule: Number, cut: Cut) -> Struck {
        let (bytes, lines) = match self.cut_from {
            Some((known, bytes, lines)) if known == rule => (bytes, lines),
            _ => {
                self.cut_from = Some((rule, self.bytes, self.lines));
                (self.bytes, self.lines)
            }
        };
        let end = if cut.clean { Ok(()) } else { Err(Broken) };
        match cut.at {
            CutAt::Bytes(limit) => match limit.saturating_sub(self.bytes - bytes) {
                0 => self.finish(end),
                left => self.pass(left),
            },
            CutAt::Line(number) if self.lines - lines < number => self.pass_line(),
            CutAt::Line(_) if self.held.is_empty() => Struck::Hungry,
            CutAt::Line(_) => {
                let line = self.line_length().unwrap_or(self.held.len());
                self.end = Some(end);
                Struck::Passed(self.take((line / 2).max(1)))
            }
        }
    }

    fn count(&mut self, piece: &[u8]) {
        self.bytes += piece.len();
        self.lines += piece.split(|byte| *byte == b'\n').count() - 1;
        self.mid_line = piece.last() != Some(&b'\n');
    }

    /// Waits for more of the body, or for other rules.
    async fn read(&mut self) {
        // Cancel-safe: a frame not taken stays, and a change only marks itself as seen.
        tokio::select! {
            biased;
            _ = self.changes.changed() => {}
            frame = self.upstream.frame() => match frame {
                Some(Ok(frame)) => if let Ok(data) = frame.into_data() {
                    self.held.extend_from_slice(&data);
                },
                Some(Err(_)) => self.end = Some(Err(Broken)),
                None => self.complete = true,
            },
        }
    }
}

/// What a fault made of what is held.
enum Struck {
    /// This is passed on; empty when only the end was decided.
    Passed(Bytes),
    /// Nothing until the rules change.
    Waiting,
    /// Nothing until more arrives.
    Hungry,
}
