//! Names and secrets for CHAP, from the command line, a file or the environment.

use std::path::Path;

use intact::iscsi::chap::{ChapPolicy, Credentials};

use super::chap::Account;
use crate::host::error::HostError;

/// Where a secret may come from, in this order.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// What names it in messages: `--chap-secret`.
    pub option: &'static str,
    /// Given itself.
    pub given: Option<&'a str>,
    /// In the first line of a file.
    pub file: Option<&'a Path>,
    /// In a variable of the environment.
    pub variable: &'static str,
}

impl Source<'_> {
    /// The secret, if there is one.
    ///
    /// # Errors
    /// When the file can't be read, or the variable is not UTF-8.
    pub fn read(&self) -> Result<Option<Vec<u8>>, HostError> {
        if let Some(given) = self.given {
            return Ok(Some(given.as_bytes().to_vec()));
        }
        if let Some(path) = self.file {
            let text =
                std::fs::read(path).map_err(|source| HostError::File { path: path.to_owned(), source })?;
            let line = text.split(|byte| matches!(byte, b'\n' | b'\r')).next().unwrap_or_default();
            return Ok(Some(line.to_vec()));
        }
        match std::env::var(self.variable) {
            Ok(secret) => Ok(Some(secret.into_bytes())),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(error) => Err(HostError::Invalid(format!("{}: {error}", self.variable))),
        }
    }
}

/// What is proved: nothing without a user, and something by the target only if it has one, too.
///
/// # Errors
/// When a part is missing, empty, or both secrets are the same.
pub fn account(
    host: (Option<&str>, Source<'_>),
    target: (Option<&str>, Source<'_>),
) -> Result<Option<Account>, HostError> {
    let credentials = |user: Option<&str>, source: Source<'_>, user_option: &str| {
        let Some(user) = user else {
            // A variable may be there for other targets; what is said here is meant for this one.
            if source.given.is_some() || source.file.is_some() {
                return Err(HostError::Invalid(format!("{}: whose? {user_option} says it", source.option)));
            }
            return Ok(None);
        };
        let secret = source.read()?.ok_or_else(|| {
            let Source { option, variable, .. } = source;
            HostError::Invalid(format!("{user_option} needs {option}, {option}-file, or {variable}"))
        })?;
        Ok(Some(Credentials { name: user.to_owned(), secret }))
    };
    let target = credentials(target.0, target.1, "--mutual-user")?;
    let Some(host) = credentials(host.0, host.1, "--chap-user")? else {
        return match target {
            Some(_) => Err(HostError::Invalid("--mutual-user needs --chap-user, too".to_owned())),
            None => Ok(None),
        };
    };
    // The rules that a target holds its credentials to.
    ChapPolicy::new(host.clone(), target.clone()).map_err(|error| HostError::Invalid(error.to_string()))?;
    Ok(Some(Account { host, target }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source<'a>(option: &'static str, given: Option<&'a str>, file: Option<&'a Path>) -> Source<'a> {
        Source { option, given, file, variable: "INTACT_TEST_SECRET_THAT_IS_NOT_SET" }
    }

    fn of(
        host: (Option<&str>, Option<&str>),
        target: (Option<&str>, Option<&str>),
    ) -> Result<Option<Account>, String> {
        let result = account(
            (host.0, source("--chap-secret", host.1, None)),
            (target.0, source("--mutual-secret", target.1, None)),
        );
        result.map_err(|error| error.to_string())
    }

    #[test]
    fn an_account_is_complete_or_none() {
        assert_eq!(of((None, None), (None, None)), Ok(None));
        let one_way = of((Some("host"), Some("secret")), (None, None)).unwrap().unwrap();
        assert_eq!((one_way.host.name.as_str(), one_way.target), ("host", None));
        let mutual = of((Some("host"), Some("secret")), (Some("target"), Some("other"))).unwrap().unwrap();
        assert_eq!(mutual.target.unwrap().secret, b"other");
        let refused = |host, target| of(host, target).unwrap_err();
        assert_eq!(
            refused((Some("host"), None), (None, None)),
            "--chap-user needs --chap-secret, --chap-secret-file, or INTACT_TEST_SECRET_THAT_IS_NOT_SET"
        );
        let whose = refused((None, Some("secret")), (None, None));
        assert_eq!(whose, "--chap-secret: whose? --chap-user says it");
        let alone = refused((None, None), (Some("target"), Some("other")));
        assert_eq!(alone, "--mutual-user needs --chap-user, too");
        let same = refused((Some("host"), Some("secret")), (Some("target"), Some("secret")));
        assert!(same.contains("are the same"), "{same}");
        let empty = refused((Some("host"), Some("")), (None, None));
        assert!(empty.contains("is empty"), "{empty}");
    }

    #[test]
    fn a_file_holds_its_secret_in_its_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "a secret \r\nnot this\n").unwrap();
        assert_eq!(source("--chap-secret", None, Some(&path)).read().unwrap().unwrap(), b"a secret ");
        let missing = folder.path().join("nothing");
        let error = source("--chap-secret", None, Some(&missing)).read().unwrap_err();
        assert!(error.to_string().ends_with("nothing"), "{error}");
    }
}
