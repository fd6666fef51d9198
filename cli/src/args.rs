//! What a person types.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use jiff::SignedDuration;
use tidemark_domain::calendar::TriggerKind;
use tidemark_domain::listing::ListingFormat;
use tidemark_domain::politeness::Politeness;

/// Notices when upstream data changes, acts on each change exactly once, and can prove what it did.
#[derive(Debug, Parser)]
#[command(name = "tidemark", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Taken by every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// The folder with the store.
    #[arg(long, global = true, value_name = "DIR", default_value = ".tidemark", env = "TIDEMARK_DATA")]
    pub(crate) data: PathBuf,
    /// A deployed stack instead of a folder; region and credentials come from the usual AWS environment.
    #[arg(long, global = true, value_name = "NAME", env = "TIDEMARK_STACK")]
    pub(crate) stack: Option<String>,
    /// JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How servers can reach you; added to the User-Agent.
    #[arg(long, global = true, value_name = "URL|EMAIL", env = "TIDEMARK_CONTACT")]
    pub(crate) contact: Option<String>,
    /// Log more to standard error (-v, -vv).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Cli {
    /// Reads the command line. Folder or stack: what is typed stands against what is in the environment, and two
    /// that are said in the same place are an error, not a guess.
    pub(crate) fn read() -> Self {
        Self::read_from(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    fn read_from(words: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>) -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches_from(words)?;
        let mut cli = Self::from_arg_matches(&matches)?;
        let said = |id: &str| matches.value_source(id).filter(|source| *source != ValueSource::DefaultValue);
        match (said("data"), said("stack")) {
            (Some(ValueSource::CommandLine), Some(ValueSource::EnvVariable)) => cli.global.stack = None,
            (Some(data), Some(stack)) if data == stack => {
                let message = "a command works on a folder (--data, TIDEMARK_DATA) or on a stack (--stack, TIDEMARK_STACK), not on both";
                return Err(Self::command().error(ErrorKind::ArgumentConflict, message));
            }
            _ => {}
        }
        if let Command::Check(args) = &cli.command
            && args.chosen() != 1
        {
            let kind = if args.chosen() == 0 { ErrorKind::MissingRequiredArgument } else { ErrorKind::ArgumentConflict };
            return Err(Self::command().error(kind, "check takes exactly one of URL|SOURCE, --due, --all and --trigger KIND"));
        }
        Ok(cli)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything here: webhooks in, polling, handling, the feed and its page.
    Serve(ServeArgs),
    /// Register one URL to watch.
    Add(AddArgs),
    /// Register what a sources file lists: shows what would change, then does it.
    #[command(visible_alias = "import")]
    Apply(ApplyArgs),
    /// List the registered sources.
    Sources,
    /// Look at sources now, and handle what is found.
    Check(CheckArgs),
    /// List changes, newest first.
    Changes(ChangesArgs),
    /// Show one change.
    Show {
        /// A feed index, a run or delta id (or its beginning), or an event id.
        #[arg(value_name = "CHANGE")]
        id: String,
    },
    /// Say why something happened, or why nothing did.
    Explain {
        /// A change, an event id, a delivery id, or a source.
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Say how every source stands, and how much noise was kept out.
    Status,
    /// Draw the year: when every source is expected to change, and what came early, late or not at all.
    Schedule(ScheduleArgs),
    /// Rehash and cross-check everything that is stored.
    Verify,
    /// Make a manifest of a listing, or compare two listings.
    Manifest {
        #[command(subcommand)]
        command: ManifestCommand,
    },
    /// Look at what could not be handled, and put it back.
    Dlq {
        #[command(subcommand)]
        command: DlqCommand,
    },
    /// Send a test delivery.
    Webhook {
        #[command(subcommand)]
        command: WebhookCommand,
    },
    /// Print a completion script for your shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7878")]
    pub(crate) listen: SocketAddr,
    /// Also run a small sample upstream on loopback that changes while you watch.
    #[arg(long)]
    pub(crate) example: bool,
    /// Messages handled at the same time; 0 only receives, and leaves handling to another process.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(0..=256))]
    pub(crate) workers: u16,
    /// Sources looked at at the same time; 0 does not poll.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=256))]
    pub(crate) pollers: u16,
    /// Streams followed at the same time; 0 follows none.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub(crate) streams: u16,
    #[command(flatten)]
    pub(crate) politeness: PolitenessArgs,
}

/// How gently hosts are asked.
#[derive(Clone, Debug, Args)]
pub(crate) struct PolitenessArgs {
    /// Sources of one host looked at at the same time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) per_host: u16,
    /// Milliseconds from the start of one look at a host to the start of the next.
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=3_600_000))]
    pub(crate) spacing_ms: u32,
    /// A host of your own, for which both of these do not count, as it stands in the URL: HOST or HOST:PORT.
    #[arg(long = "lift", value_name = "HOST", env = "TIDEMARK_LIFT", value_delimiter = ',')]
    pub(crate) lifted: Vec<String>,
}

impl PolitenessArgs {
    pub(crate) fn politeness(&self) -> Politeness {
        Politeness {
            per_host: usize::from(self.per_host),
            spacing_ms: i64::from(self.spacing_ms),
            lifted: self.lifted.iter().cloned().collect(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// What to watch.
    pub(crate) url: String,
    /// Its name; made from the URL if left out.
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// How often to look at first, such as 90s, 15m or 1d.
    #[arg(long, value_name = "TIME", default_value = "15m")]
    pub(crate) every: String,
    /// Allow plain http.
    #[arg(long)]
    pub(crate) allow_http: bool,
    /// Allow addresses that are not global, such as loopback.
    #[arg(long)]
    pub(crate) allow_private: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// A YAML file with a list `sources`, or a table in CSV (.csv) whose first row names fields.
    pub(crate) file: PathBuf,
    /// Also unregister every source that the file does not list. Histories stay.
    #[arg(long)]
    pub(crate) prune: bool,
    /// Only say what would change: exits with 0 if nothing would, and with 2 if something would.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask. Nobody is asked either where input or output is no terminal.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Exactly one of the first four.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A registered URL or source id.
    #[arg(value_name = "URL|SOURCE")]
    pub(crate) target: Option<String>,
    /// Every source that is due now.
    #[arg(long)]
    pub(crate) due: bool,
    /// Every source, due or not.
    #[arg(long)]
    pub(crate) all: bool,
    /// Every source that changes for this reason: annual, redistricting, census, manual or cron.
    #[arg(long, value_name = "KIND", value_parser = trigger_kind)]
    pub(crate) trigger: Option<TriggerKind>,
    #[command(flatten)]
    pub(crate) poll: PollArgs,
}

/// How many sources are looked at, how fast.
#[derive(Clone, Debug, Args)]
pub(crate) struct PollArgs {
    /// Sources looked at at the same time.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) in_flight: u16,
    /// No look begins after this time, such as 90s, 30m or 2h.
    #[arg(long = "for", value_name = "TIME", default_value = "30m", value_parser = time_ms)]
    for_ms: i64,
    #[command(flatten)]
    politeness: PolitenessArgs,
}

impl PollArgs {
    pub(crate) fn for_ms(&self) -> i64 {
        self.for_ms
    }

    pub(crate) fn politeness(&self) -> Politeness {
        self.politeness.politeness()
    }
}

fn time_ms(text: &str) -> Result<i64, String> {
    let span: SignedDuration = text.parse().map_err(|_| "write it as 90s, 30m or 2h")?;
    Ok(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
}

impl CheckArgs {
    /// How many ways of saying what to look at were used.
    fn chosen(&self) -> usize {
        [self.target.is_some(), self.due, self.all, self.trigger.is_some()].into_iter().filter(|used| *used).count()
    }
}

fn trigger_kind(word: &str) -> Result<TriggerKind, String> {
    TriggerKind::ALL.into_iter().find(|kind| kind.as_str() == word).ok_or_else(|| {
        let kinds = TriggerKind::ALL.map(TriggerKind::as_str).join(", ");
        format!("a trigger is one of {kinds}")
    })
}

#[derive(Debug, Args)]
pub(crate) struct ScheduleArgs {
    /// The year; this one if left out.
    #[arg(long, value_name = "YEAR", value_parser = clap::value_parser!(i16).range(1970..=9998))]
    pub(crate) year: Option<i16>,
    /// Only this source.
    #[arg(long)]
    pub(crate) source: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ChangesArgs {
    /// Only of this source.
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    /// Only older than this index.
    #[arg(long, value_name = "INDEX")]
    pub(crate) before: Option<u64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ManifestCommand {
    /// Sort a listing, each URI once, and write it as a manifest with its checksum.
    Build(ManifestBuildArgs),
    /// Say what two listings differ in, whatever order they are in. Ends with 0 if in nothing, with 1 if in something.
    Diff(ManifestDiffArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ManifestBuildArgs {
    /// A file, or the URL of a listing: all its pages are read.
    #[arg(value_name = "FILE|URL")]
    pub(crate) from: String,
    /// The manifest to write.
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// What it is written in; said by the file's name if left out (.json, .jsonl, .csv, .html).
    #[arg(long, value_name = "FORMAT", value_parser = listing_format)]
    pub(crate) format: Option<ListingFormat>,
    /// What relative addresses, keys and paths are below.
    #[arg(long, value_name = "URL")]
    pub(crate) base: Option<String>,
    /// The end of the manifest's name.
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Where what does not fit into memory is spilled; beside OUT if left out.
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,
    /// Allow plain http.
    #[arg(long)]
    pub(crate) allow_http: bool,
    /// Allow addresses that are not global, such as loopback.
    #[arg(long)]
    pub(crate) allow_private: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ManifestDiffArgs {
    /// The listing before.
    pub(crate) old: PathBuf,
    /// The listing after.
    pub(crate) new: PathBuf,
    /// What both are written in; said by their names if left out (.json, .jsonl, .csv, .html).
    #[arg(long, value_name = "FORMAT", value_parser = listing_format)]
    pub(crate) format: Option<ListingFormat>,
    /// List at most so many differences; 0 lists all. All are counted.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: u64,
    /// Where what does not fit into memory is spilled; beside NEW if left out.
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,
}

fn listing_format(word: &str) -> Result<ListingFormat, String> {
    ListingFormat::ALL.into_iter().find(|format| format.as_str() == word).ok_or_else(|| {
        let words = ListingFormat::ALL.map(ListingFormat::as_str).join(", ");
        format!("a format is one of {words}")
    })
}

#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// List dead letters by their cause.
    List {
        /// Only of this source.
        #[arg(long)]
        source: Option<String>,
        /// At most so many, the newest.
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        limit: u16,
    },
    /// Show one dead letter.
    Show {
        /// Its id, or the id of its event.
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Put dead letters back into the queue, once their cause is removed.
    Redrive(RedriveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RedriveArgs {
    /// These.
    #[arg(value_name = "ID", conflicts_with_all = ["source", "cause", "all"])]
    pub(crate) ids: Vec<String>,
    /// Those of this source.
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// Those that died of this cause, such as upstream.body_too_large.
    #[arg(long, value_name = "CODE")]
    pub(crate) cause: Option<String>,
    /// All of them.
    #[arg(long, conflicts_with_all = ["source", "cause"])]
    pub(crate) all: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WebhookCommand {
    /// Sign a delivery with the source's own secret, and send it.
    Send(SendArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The source to call.
    pub(crate) source: String,
    /// The URI that changed; the source's own URL if left out.
    #[arg(long)]
    pub(crate) uri: Option<String>,
    /// The whole JSON body, instead of one with the URI.
    #[arg(long, conflicts_with = "uri")]
    pub(crate) body: Option<String>,
    /// The delivery's id; a new one if left out.
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// Where to send it: http://127.0.0.1:7878, where `tidemark serve` listens, or the stack's own address if left out.
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<String>,
    /// Send it so often at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) copies: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_says_exactly_once_what_to_look_at() {
        let read = |words: &[&str]| Cli::read_from([&["tidemark", "check"], words].concat()).map(drop);
        for words in [&["file"][..], &["--due"], &["--all", "--in-flight", "256"], &["--trigger", "census"]] {
            assert!(read(words).is_ok(), "{words:?}");
        }
        for words in [&[][..], &["file", "--all"], &["--due", "--all"], &["--all", "--trigger", "cron"], &["file", "--trigger", "cron"]] {
            let said = read(words).unwrap_err().to_string();
            assert!(said.contains("exactly one of URL|SOURCE, --due, --all and --trigger"), "{words:?}: {said}");
        }
        let unknown = read(&["--trigger", "weekly"]).unwrap_err().to_string();
        assert!(unknown.contains("annual, redistricting, census, manual, cron"), "{unknown}");
        assert!(read(&["--all", "--in-flight", "0"]).is_err() && read(&["--all", "--in-flight", "257"]).is_err());
    }

    #[test]
    fn a_command_works_on_a_folder_or_on_a_stack() {
        let place = |words: &[&str]| Cli::read_from([&["tidemark"], words].concat()).map(|cli| (cli.global.data, cli.global.stack));
        assert_eq!(place(&["status"]).unwrap(), (".tidemark".into(), None));
        assert_eq!(place(&["status", "--data", "d"]).unwrap(), ("d".into(), None));
        assert_eq!(place(&["status", "--stack", "s"]).unwrap().1, Some("s".into()));
        for words in [["--data", "d", "status", "--stack", "s"], ["status", "--stack", "s", "--data", "d"]] {
            assert_eq!(place(&words).unwrap_err().kind(), ErrorKind::ArgumentConflict);
        }
    }
}
