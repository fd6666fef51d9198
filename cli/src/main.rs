//! The `tidemark` program. Wires clock, environment, store and upstream to the pipeline, and nothing else.

mod args;
mod commands;
mod node;
mod output;
mod serve;
mod stack;
mod store;

use std::process::ExitCode;

use tidemark_domain::Fault;

use crate::args::{Cli, Command, DlqCommand, ManifestCommand, WebhookCommand};
use crate::node::Node;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::read();
    start_logging(cli.global.verbose);
    match run(&cli).await {
        Ok(code) => code,
        Err(fault) => {
            report(&fault, cli.global.json);
            let comparing = matches!(cli.command, Command::Manifest { command: ManifestCommand::Diff(_) });
            if comparing { ExitCode::from(commands::manifest::TROUBLE) } else { ExitCode::FAILURE }
        }
    }
}

async fn run(cli: &Cli) -> Result<ExitCode, Fault> {
    if let Command::Completions { shell } = &cli.command {
        commands::completions::print(*shell);
        return Ok(ExitCode::SUCCESS);
    }
    if let (Command::Serve(_), Some(stack)) = (&cli.command, &cli.global.stack) {
        return Err(store::only_here(&format!("`{stack}` is deployed and runs by itself; `tidemark serve` runs a folder on this machine")));
    }
    if let Command::Manifest { command } = &cli.command {
        return match command {
            ManifestCommand::Build(args) => commands::manifest::build(args, &cli.global).await,
            ManifestCommand::Diff(args) => commands::manifest::diff(args, cli.global.json),
        };
    }
    let node = Node::open(&cli.global).await?;
    let json = cli.global.json;
    match &cli.command {
        Command::Serve(args) => serve::run(node, args).await.map(|()| ExitCode::SUCCESS),
        Command::Add(args) => commands::sources::add(&node, args, json).await,
        Command::Apply(args) => commands::sources::apply(&node, args, json).await,
        Command::Sources => commands::sources::list(&node, json).await,
        Command::Check(args) => commands::check::check(&node, args, json).await,
        Command::Changes(args) => commands::changes::list(&node, args, json).await,
        Command::Show { id } => commands::changes::show(&node, id, json).await,
        Command::Explain { id } => commands::explain::explain(&node, id, json).await,
        Command::Status => commands::status::status(&node, json).await,
        Command::Schedule(args) => commands::schedule::schedule(&node, args, json).await,
        Command::Verify => commands::verify::verify(&node, json).await,
        Command::Dlq { command } => match command {
            DlqCommand::List { source, limit } => commands::dlq::list(&node, source.as_deref(), usize::from(*limit), json).await,
            DlqCommand::Show { id } => commands::dlq::show(&node, id, json).await,
            DlqCommand::Redrive(args) => commands::dlq::redrive(&node, args, json).await,
        },
        Command::Webhook { command: WebhookCommand::Send(args) } => commands::webhook::send(&node, args, json).await,
        Command::Completions { .. } | Command::Manifest { .. } => Ok(ExitCode::SUCCESS),
    }
}

/// Says what happened, to what, and what to do next.
fn report(fault: &Fault, json: bool) {
    if json {
        let text = serde_json::to_string(&serde_json::json!({ "error": fault })).unwrap_or_default();
        eprintln!("{text}");
        return;
    }
    eprintln!("tidemark: {}", fault.message);
    if let Some(remedy) = &fault.remedy {
        eprintln!("  → {remedy}");
    }
}

fn start_logging(verbose: u8) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        _ => tracing::Level::DEBUG,
    };
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false).init();
}
