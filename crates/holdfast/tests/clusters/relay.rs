//! An address that leads to one API server, to another one, or nowhere, as the test says. TLS passes through.

use std::{net::SocketAddr, sync::Arc};

use holdfast_testkit::ControlPlane;
use tokio::{
    io::{AsyncReadExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// What becomes of connections. Whenever it is set anew, those that are open are cut.
#[derive(Clone, Copy, Debug)]
enum Way {
    To(SocketAddr),
    Closed,
    Silent,
}

/// Ends with the test.
pub struct Relay {
    address: SocketAddr,
    way: Arc<watch::Sender<Way>>,
}

impl Relay {
    /// A relay to a control plane.
    #[expect(clippy::disallowed_methods, reason = "its tasks end with the runtime of the test")]
    pub async fn to(plane: &ControlPlane) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let way = Arc::new(watch::Sender::new(Way::To(address_of(plane))));
        let ways = Arc::clone(&way);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(pass(stream, ways.subscribe()));
            }
        });
        Self { address, way }
    }

    /// As it stands in a kubeconfig.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Leads to this control plane from now on; cuts what is open.
    pub fn lead_to(&self, plane: &ControlPlane) {
        self.way.send_replace(Way::To(address_of(plane)));
    }

    /// Every connection is closed as soon as the client has said something.
    pub fn close(&self) {
        self.way.send_replace(Way::Closed);
    }

    /// Connections are taken and nobody answers.
    pub fn fall_silent(&self) {
        self.way.send_replace(Way::Silent);
    }
}

fn address_of(plane: &ControlPlane) -> SocketAddr {
    plane.url().trim_start_matches("https://").parse().unwrap()
}

async fn pass(mut stream: TcpStream, mut ways: watch::Receiver<Way>) {
    let way = *ways.borrow_and_update();
    let carried = async {
        match way {
            Way::To(address) => {
                if let Ok(mut server) = TcpStream::connect(address).await {
                    _ = copy_bidirectional(&mut stream, &mut server).await;
                }
            }
            Way::Closed => {
                // With its greeting unread the client would see a reset, sometimes.
                _ = stream.read(&mut [0; 4096]).await;
            }
            Way::Silent => std::future::pending().await,
        }
    };
    tokio::select! {
        () = carried => {}
        _ = ways.changed() => {}
    }
}
