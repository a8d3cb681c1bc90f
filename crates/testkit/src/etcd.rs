//! The store, which several API servers may share.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    programs::Program,
    rest::within_deadline,
    server::{Server, flags, on_free_port},
    work_dir::WorkDir,
};

/// A running etcd on a data folder that is thrown away.
pub(crate) struct Etcd {
    /// Kept for its destructor.
    _server: Server,
    url: String,
}

impl Etcd {
    /// Starts etcd and waits until it elected itself.
    pub(crate) async fn start(work: &WorkDir) -> Result<Self> {
        let (url, server) = on_free_port(async |port| {
            let dir = work.subdir("etcd")?;
            let url = format!("http://127.0.0.1:{port}");
            let args = flags([
                ("name", &"etcd"),
                ("data-dir", &dir.join("data")),
                ("listen-client-urls", &url),
                ("advertise-client-urls", &url),
                ("listen-peer-urls", &"http://127.0.0.1:0"),
                // The data is worth nothing after a crash.
                ("unsafe-no-fsync", &"true"),
                ("quota-backend-bytes", &(8_u64 << 30).to_string()),
                ("log-level", &"warn"),
            ]);
            let mut server = Server::start(Program::Etcd, work, &dir, args)?;
            let outcome = server.wait_until(async || is_healthy(port).await.unwrap_or(false)).await;
            Ok((url, server, outcome))
        })
        .await?;
        Ok(Self { _server: server, url })
    }

    /// Where clients connect.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

async fn is_healthy(port: u16) -> Result<bool> {
    within_deadline("asking etcd", async {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        connection.write_all(b"GET /health HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.context("reading the answer")?;
        Ok(answer.contains(r#""health":"true""#))
    })
    .await
}
