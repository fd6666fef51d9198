//! Completion scripts, made from the arguments themselves.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;

pub(crate) fn print(shell: Shell) {
    clap_complete::generate(shell, &mut Cli::command(), "tidemark", &mut std::io::stdout());
}
