use std::{net::SocketAddr, sync::Arc};

use holdfast_fleet::{
    supervisor::{Supervisor, Task},
    watch::WatchStats,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
};

use super::*;

async fn get_page(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

struct Fixture {
    fleet: watch::Sender<Arc<FleetView>>,
    term: watch::Sender<Option<Term>>,
    supervisor: Supervisor,
    sources: Sources,
}

fn fixture() -> Fixture {
    let fleet = watch::Sender::new(Arc::new(FleetView::default()));
    let term = watch::Sender::new(None);
    let supervisor = Supervisor::root("hub");
    let metrics = Arc::new(Metrics::new(Arc::new(WatchStats::default())).unwrap());
    let sources = Sources { metrics, fleet: fleet.subscribe(), term: term.subscribe(), supervisor: supervisor.clone() };
    Fixture { fleet, term, supervisor, sources }
}

fn serve(supervisor: &Supervisor, listener: Listener) -> SocketAddr {
    let address = listener.address().unwrap();
    let mut listener = Some(listener);
    supervisor.spawn(Task::new("http").finishes(), move |token| {
        let listener = listener.take().unwrap();
        async move { listener.serve(token).await }
    });
    address
}

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

#[tokio::test]
async fn probes_and_metrics_answer() {
    let Fixture { fleet, term, supervisor, sources } = fixture();
    let address = serve(&supervisor, Listener::public(ANY, sources).await.unwrap());
    assert_eq!(get_page(address, "/healthz").await.0, 200);
    assert_eq!(get_page(address, "/readyz").await.0, 503);
    fleet.send_replace(Arc::new(FleetView { complete: true, ..FleetView::default() }));
    assert_eq!(get_page(address, "/readyz").await, (200, "standby\n".to_owned()));
    term.send_replace(Some(Term::unlimited()));
    assert_eq!(get_page(address, "/readyz").await, (200, "ok\n".to_owned()));
    let (code, page) = get_page(address, "/metrics").await;
    assert_eq!(code, 200);
    assert!(page.contains("holdfast_clusters{"), "{page}");
    assert_eq!(get_page(address, "/debug/tasks").await.0, 404, "only on the API listener");
    supervisor.stop(Duration::from_secs(5)).await;
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn tasks_are_listed_on_loopback_only() {
    let Fixture { supervisor, sources, .. } = fixture();
    let address = serve(&supervisor, Listener::api(ANY, sources.clone()).await.unwrap());
    let (code, page) = get_page(address, "/debug/tasks").await;
    assert_eq!(code, 200);
    assert!(page.contains("hub/http"), "{page}");
    let open = Listener::api("0.0.0.0:0".parse().unwrap(), sources).await.unwrap();
    let mut address = serve(&supervisor, open);
    address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    assert_eq!(get_page(address, "/debug/tasks").await.0, 404);
    assert_eq!(get_page(address, "/healthz").await.0, 200);
    supervisor.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_dead_essential_task_is_told_and_an_open_connection_does_not_hold_up_the_end() {
    let Fixture { supervisor, sources, .. } = fixture();
    let server = Supervisor::root("server");
    let address = serve(&server, Listener::public(ANY, sources).await.unwrap());
    let idle = TcpStream::connect(address).await.unwrap();
    supervisor.spawn(Task::new("needed").essential(), |_| async { Err::<(), _>(HttpError::Serve(std::io::ErrorKind::Other.into())) });
    supervisor.cancelled().await;
    let (code, page) = get_page(address, "/healthz").await;
    assert_eq!(code, 503);
    assert!(page.contains("needed"), "{page}");
    assert_eq!(server.stop(Duration::from_secs(5)).await, holdfast_fleet::supervisor::Stopped::Clean);
    drop(idle);
}

#[tokio::test]
async fn a_taken_address_is_an_error_at_once() {
    let Fixture { sources, .. } = fixture();
    let first = Listener::public(ANY, sources.clone()).await.unwrap();
    let error = Listener::public(first.address().unwrap(), sources).await.unwrap_err();
    assert_eq!(error.category(), "Listen");
}
