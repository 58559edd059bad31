//! `bellwether completion` and `bellwether man`: what is made from the command line itself.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

/// Which shell.
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completions for a shell.
///
/// # Errors
/// When standard output is closed.
pub(crate) fn completion(arguments: &Completion, mut command: Command) -> anyhow::Result<ExitCode> {
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, name, &mut text);
    io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints one manual page of all commands.
///
/// # Errors
/// When standard output is closed.
pub(crate) fn man(mut command: Command) -> anyhow::Result<ExitCode> {
    command.build();
    let mut text = Vec::new();
    let page = clap_mangen::Man::new(command.clone());
    page.render(&mut text)?;
    for below in command
        .get_subcommands()
        .filter(|c| !c.is_hide_set() && c.get_name() != "help")
    {
        let page = clap_mangen::Man::new(below.clone());
        writeln!(text, ".SH {}", below.get_name().to_uppercase())?;
        page.render_description_section(&mut text)?;
        page.render_synopsis_section(&mut text)?;
        page.render_options_section(&mut text)?;
    }
    io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}
