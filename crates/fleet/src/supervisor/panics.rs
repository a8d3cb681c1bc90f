//! Keeps the text of panics out of the log.

/// Replaces the process's panic hook by one that logs where it happened and nothing else.
///
/// The default hook prints the panic's text, which may quote what was being handled, a Secret for example. To be called once, early in `main`.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let location = info.location();
        tracing::error!(
            file = location.map_or("unknown", std::panic::Location::file),
            line = location.map_or(0, std::panic::Location::line),
            thread = std::thread::current().name().unwrap_or("unnamed"),
            "panic"
        );
    }));
}
