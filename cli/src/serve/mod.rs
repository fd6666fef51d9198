//! `tidemark serve`: the whole line in one process. A clean stop finishes what is in hand; a killed one
//! is taken up by the next start where it stopped.

mod api;
mod connections;
mod example;
mod folders;
mod page;
pub(crate) mod standings;
pub(crate) mod streams;
pub(crate) mod work;

use std::net::SocketAddr;
use std::time::Duration;

use tidemark_domain::Fault;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::warn;

use crate::args::ServeArgs;
use crate::node::Node;

/// How long a clean stop waits for what is in hand before it leaves it to the next start.
const STOP_WAIT: Duration = Duration::from_secs(20);

pub(crate) async fn run(node: Node, args: &ServeArgs) -> Result<(), Fault> {
    let listener = bind(args.listen).await?;
    let address = listener.local_addr().unwrap_or(args.listen);
    let (stop, stopping) = watch::channel(false);
    let mut tasks = tokio::task::JoinSet::new();
    if args.example {
        let upstream = example::start(&node, stopping.clone()).await?;
        tasks.spawn(upstream);
    }
    if args.workers > 0 {
        tasks.spawn(work::handling(node.clone(), usize::from(args.workers), stopping.clone()));
    }
    if args.pollers > 0 {
        tasks.spawn(work::polling(node.clone(), args.clone(), stopping.clone()));
    }
    if args.streams > 0 {
        tasks.spawn(streams::following(node.clone(), usize::from(args.streams), stopping.clone()));
    }
    tasks.spawn(folders::watching(node.clone(), stopping.clone()));
    tasks.spawn(work::publishing(node.clone(), stopping.clone()));
    tasks.spawn(api::serve(node.clone(), listener, stopping));
    greet(address, node.store.local()?.dir(), args.example);

    let result = tokio::select! {
        () = stop_signal() => Ok(()),
        Some(ended) = tasks.join_next() => ended.unwrap_or_else(|error| {
            Err(Fault::permanent("serve.task_died", format!("a part of serve stopped: {error}")).remedy("this is a bug: please report it"))
        }),
    };
    eprintln!("Stopping: finishing what is in hand …");
    let _ = stop.send(true);
    let drained = async {
        while let Some(ended) = tasks.join_next().await {
            if let Ok(Err(fault)) = ended {
                warn!(code = %fault.code, "{fault}");
            }
        }
    };
    if tokio::time::timeout(STOP_WAIT, drained).await.is_err() {
        eprintln!("Stopped with work in hand; the next start goes on with it.");
    }
    result
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Fault> {
    TcpListener::bind(address).await.map_err(|error| {
        Fault::permanent("serve.listen", format!("cannot listen on {address}: {error}"))
            .remedy("stop what uses that port, or choose another with --listen 127.0.0.1:PORT")
    })
}

fn greet(address: SocketAddr, data: &std::path::Path, example: bool) {
    println!("Tidemark is running. The page: http://{address}/   The feed: http://{address}/v1/changes");
    if example {
        println!("{}", example::things_to_try(address, data));
    }
    println!("Ctrl-C stops it; nothing accepted is lost.");
}

/// Ctrl-C, or the signal that service managers send.
async fn stop_signal() {
    let interrupted = tokio::signal::ctrl_c();
    match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(mut terminated) => {
            tokio::select! {
                _ = interrupted => {}
                _ = terminated.recv() => {}
            }
        }
        Err(_) => {
            let _ = interrupted.await;
        }
    }
}
