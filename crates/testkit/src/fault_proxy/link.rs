//! Connections as bytes: accepted, held up, slowed down, reset.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf},
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{ReadHalf as TcpReadHalf, WriteHalf as TcpWriteHalf},
    },
    sync::{Notify, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    Shared,
    exchange::serve,
    fault::{Link, dose},
};

/// Bytes between the socket and TLS.
const BUFFER: usize = 64 * 1024;
/// What a client may send into a silent connection.
const HELD_UP: usize = 1024 * 1024;
/// How long the last bytes of a connection that is over may take.
const DRAIN: Duration = Duration::from_secs(1);
/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// How the way to the server is, and how often everything open was reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) link: Link,
    pub(super) resets: u64,
}

/// Resets one connection.
#[derive(Clone)]
pub(super) struct Resets(Arc<Notify>);

impl Resets {
    pub(super) fn reset(&self) {
        self.0.notify_one();
    }
}

/// A loopback port that stays ours while nobody listens on it.
pub(super) struct Port {
    /// Bound and never listening: connections are refused, and nobody else is given the port.
    _placeholder: TcpSocket,
    pub(super) address: SocketAddr,
}

impl Port {
    pub(super) fn take() -> io::Result<Self> {
        let placeholder = bound(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = placeholder.local_addr()?;
        Ok(Self { _placeholder: placeholder, address })
    }

    fn listen(&self) -> io::Result<TcpListener> {
        bound(self.address)?.listen(BACKLOG)
    }
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Counts one connection for as long as it lives.
struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    fn new(open: &'a AtomicU64) -> Self {
        open.fetch_add(1, Ordering::AcqRel);
        Self(open)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Accepts connections until aborted; they go with it.
pub(super) async fn accept(shared: Arc<Shared>, port: Port) {
    let mut state = shared.state.subscribe();
    let mut connections = JoinSet::new();
    let mut listener = None;
    loop {
        if state.borrow_and_update().link == Link::Refused {
            listener = None;
        } else if listener.is_none() {
            // Only a lack of file descriptors fails here; the test then sees its calls refused.
            listener = port.listen().ok();
        }
        // Cancel-safe: a connection not accepted waits in the backlog.
        tokio::select! {
            changed = state.changed() => if changed.is_err() { return },
            accepted = accepted(listener.as_ref()) => if let Ok((stream, _)) = accepted {
                shared.accepted.fetch_add(1, Ordering::AcqRel);
                connections.spawn(carry(stream, Arc::clone(&shared)));
            },
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn accepted(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// One connection, from its acceptance to its end.
async fn carry(mut stream: TcpStream, shared: Arc<Shared>) {
    let _counted = Counted::new(&shared.connections);
    let state = shared.state.subscribe();
    let notify = Arc::new(Notify::new());
    let resets = Resets(Arc::clone(&notify));
    stream.set_nodelay(true).ok();
    // As without a proxy: where nobody listens behind it, nobody answers in front of it.
    let Ok(upstream) = TcpStream::connect(shared.upstream).await else {
        stream.set_zero_linger().ok();
        return;
    };
    let (outer, inner) = tokio::io::duplex(BUFFER);
    let was_reset = {
        let pumped = pump(&mut stream, outer, state);
        let served = serve(inner, upstream, &shared, resets);
        tokio::pin!(pumped, served);
        // A connection ends once, so nothing is lost by whatever is not awaited any more.
        tokio::select! {
            () = notify.notified() => true,
            was_reset = &mut pumped => was_reset,
            () = &mut served => timeout(DRAIN, pumped).await.unwrap_or_default(),
        }
    };
    if was_reset {
        stream.set_zero_linger().ok();
    }
}

/// Carries bytes both ways until one side ends; answers whether the connection is to be reset.
async fn pump(stream: &mut TcpStream, inner: DuplexStream, state: watch::Receiver<State>) -> bool {
    let (from_client, to_client) = stream.split();
    let (from_server, to_server) = tokio::io::split(inner);
    // Whichever ends first ends the connection.
    tokio::select! {
        () = until_reset(state.clone()) => true,
        _ = upward(from_client, to_server, state.clone()) => false,
        _ = downward(from_server, to_client, state) => false,
    }
}

async fn until_reset(mut state: watch::Receiver<State>) {
    let resets = state.borrow().resets;
    let is_reset = |state: &State| matches!(state.link, Link::Reset | Link::Refused) || state.resets != resets;
    if state.wait_for(is_reset).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn upward(mut from: TcpReadHalf<'_>, mut to: WriteHalf<DuplexStream>, mut state: watch::Receiver<State>) -> io::Result<()> {
    let mut held = BytesMut::with_capacity(BUFFER);
    loop {
        let silent = state.borrow_and_update().link == Link::Silent;
        if !silent && !held.is_empty() {
            to.write_all_buf(&mut held).await?;
        }
        // Reads on while silent, because that is how the client's going away is noticed. Cancel-safe: nothing is lost that was not read.
        tokio::select! {
            changed = state.changed() => if changed.is_err() { return Ok(()) },
            read = from.read_buf(&mut held), if held.len() < HELD_UP => if read? == 0 { return to.shutdown().await },
        }
    }
}

async fn downward(mut from: ReadHalf<DuplexStream>, mut to: TcpWriteHalf<'_>, mut state: watch::Receiver<State>) -> io::Result<()> {
    let mut held = BytesMut::with_capacity(BUFFER);
    loop {
        if from.read_buf(&mut held).await? == 0 {
            return to.shutdown().await;
        }
        while !held.is_empty() {
            let link = state.borrow_and_update().link;
            match link {
                Link::Silent => {
                    if state.changed().await.is_err() {
                        return Ok(());
                    }
                }
                Link::Drip { bytes_per_second } => {
                    let (bytes, pause) = dose(bytes_per_second);
                    let piece = held.split_to(bytes.min(held.len()));
                    to.write_all(&piece).await?;
                    sleep(pause).await;
                }
                Link::Open | Link::Refused | Link::Reset => to.write_all_buf(&mut held).await?,
            }
        }
    }
}
