//! Manual pages and shell completions of the binaries, generated from their command lines.
//!
//! A release contains these pages and completions as separate files, because the images have
//! neither `man` nor a shell.

use std::fs;
use std::io;
use std::path::Path;

use clap::builder::Resettable;
use clap::{Arg, Command, CommandFactory as _};
use clap_complete::{Generator as _, Shell};

/// The shells for which completions are generated.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Fish, Shell::Zsh];

/// The command line of each binary, with the binary's name in the image.
pub fn programs() -> [Command; 3] {
    let with_tap = |command: Command| command.subcommands(querylog::command_lines());
    let nanny = with_tap(nanny::flags::Flags::command().name("dnsmasq-nanny"));
    let sidecar = with_tap(sidecar::Options::command().name("sidecar"));
    let about =
        "Probes kubedns and dnsmasq, exports health and metrics, and serves the status page.";
    [kubedns::command_line(), nanny, sidecar.about(about)]
        .map(|program| tidy(program.version(daemon::version::VERSION)))
}

/// Makes a bash completion script use one internal name for each subcommand.
///
/// In some places of the script, `clap_complete` splits the name of a program at its dashes, as if
/// the pieces were subcommands (<https://github.com/clap-rs/clap/issues/6421>). Without this
/// function, the script would find no subcommand.
fn name_subcommands(program: &str, script: &str) -> String {
    let split = program.replace('-', "__subcmd__");
    let name = program.replace('-', "__");
    script.replace(&format!("{split}__subcmd__"), &format!("{name}__subcmd__"))
}

/// Makes a zsh completion script look for the subcommand in the first word.
///
/// `clap_complete` puts an optional positional argument before the subcommand, so that zsh would
/// take the subcommand for that argument. This function removes the positional argument, which is
/// for the arguments of dnsmasq: these come after `--`, and never together with a subcommand.
fn put_subcommands_first(script: &str) -> String {
    let lines: Vec<&str> = script.lines().collect();
    let mut kept = String::new();
    for (index, line) in lines.iter().enumerate() {
        let is_before_commands = lines
            .get(index + 1)
            .is_some_and(|next| next.starts_with("\":: :_"));
        if !(is_before_commands && line.starts_with("'::")) {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept.replace("$line[2]", "$line[1]")
}

/// Removes empty default values, and clap's command `help`.
fn tidy(command: Command) -> Command {
    let subcommands: Vec<String> = command
        .get_subcommands()
        .map(|subcommand| subcommand.get_name().to_owned())
        .collect();
    let command =
        command
            .disable_help_subcommand(true)
            .mut_args(|arg| match arg.get_default_values() {
                [value] if value.is_empty() => without_default(arg),
                _ => arg,
            });
    subcommands
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, tidy))
}

fn without_default(arg: Arg) -> Arg {
    arg.default_value(Resettable::Reset)
}

/// Writes the manual pages to `man1` and the completions to `completions`, both below `directory`.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write(directory: &Path) -> io::Result<()> {
    let (pages, completions) = (directory.join("man1"), directory.join("completions"));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    for mut program in programs() {
        let name = program.get_name().to_owned();
        for shell in SHELLS {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut program, &name, &mut script);
            let text = String::from_utf8_lossy(&script);
            let script = match shell {
                Shell::Bash => name_subcommands(&name, &text),
                Shell::Zsh => put_subcommands_first(&text),
                _ => text.into_owned(),
            };
            fs::write(completions.join(shell.file_name(&name)), script)?;
        }
        clap_mangen::generate_to(program, &pages)?;
    }
    Ok(())
}
