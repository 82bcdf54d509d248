//! From a token to a certificate of its own.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use plumb_node::join::{
    CertificateResolver, Connection, Identity, NodeCertificate, Purpose, Renewal, RequestError, discover,
    load_or_create_key, request_certificate_with,
};
use rcgen::KeyPair;

use crate::data_dir::PKI;
use crate::flags::Node;

/// What is kept below `pki` in the data directory.
const AUTHORITY: &str = "ca.crt";
const CLIENT: &str = "client.pem";
/// The key that a certificate is asked for with, until there is one.
const KEY: &str = "client.key";
/// Far above any token: a longer file is something else.
const MAX_TOKEN_FILE: u64 = 4 << 10;

/// A machine that is a node.
pub(super) struct Enrolled {
    /// The way to the cluster, as the node.
    pub(super) connection: Connection,
    /// Whom to trust, in PEM.
    pub(super) authority: String,
    /// How its certificate is renewed.
    pub(super) renewal: Renewal,
    /// Its certificate.
    pub(super) certificate: NodeCertificate,
}

/// Takes up the certificate of an earlier start, or gets one with a token.
pub(super) async fn enrol(args: &Node, data: &Path, name: &str) -> anyhow::Result<Enrolled> {
    let folder = data.join(PKI);
    let kept = NodeCertificate::load(&folder.join(CLIENT))?;
    let authority = read(&folder.join(AUTHORITY))?;
    let user = format!("system:node:{name}");
    if let Some(other) = kept.as_ref().filter(|kept| kept.user != user) {
        bail!(
            "{} is the data directory of {}; --name {} takes it up again, --data-dir names another",
            data.display(),
            other.user,
            other.user.trim_start_matches("system:node:")
        );
    }
    let expired = kept.clone().filter(|kept| !kept.is_valid(Timestamp::now()));
    let kept = authority.zip(kept.filter(|kept| kept.is_valid(Timestamp::now())));
    let (authority, certificate) = if let Some(kept) = kept {
        kept
    } else {
        // The cluster knows a node that it has by the key of its last certificate, and no other machine may take its
        // name.
        let key = match expired {
            Some(expired) => expired.key()?,
            None => load_or_create_key(&folder.join(KEY))?,
        };
        let (authority, certificate) = join(args, name, &key).await?;
        certificate.save(&folder.join(CLIENT))?;
        // Its key is in the file of the certificate now; a copy that stays would be used for a later join.
        drop(std::fs::remove_file(folder.join(KEY)));
        std::fs::write(folder.join(AUTHORITY), &authority)
            .with_context(|| format!("writing {}", folder.join(AUTHORITY).display()))?;
        (authority, certificate)
    };
    let resolver = Arc::new(CertificateResolver::default());
    resolver.set(&certificate);
    let connection = Connection::new(&args.server, &authority, &Identity::Certificate(resolver.clone()))?;
    let renewal = Renewal {
        node: name.to_owned(),
        purpose: Purpose::Client,
        file: folder.join(CLIENT),
        resolver,
        connection: connection.clone(),
        clock: Arc::new(Timestamp::now),
    };
    Ok(Enrolled { connection, authority, renewal, certificate })
}

async fn join(args: &Node, name: &str, key: &KeyPair) -> anyhow::Result<(String, NodeCertificate)> {
    let Some(token) = token(args)? else {
        bail!(
            "this machine has not joined {} yet, which takes a token: run `plumb token create` there, and here the \
             command that it prints",
            args.server
        );
    };
    let authority = match (&args.ca_hash, &args.ca_file) {
        (Some(hash), _) => discover(&args.server, hash).await?,
        (None, Some(file)) => read(file)?.with_context(|| format!("there is no file {}", file.display()))?,
        (None, None) => bail!(
            "a token is sent only to a server whose certificate is verified: for {} pass --ca-hash, as \
             `plumb token create` prints it, or --ca-file",
            args.server
        ),
    };
    let bearer = Connection::new(&args.server, &authority, &Identity::Token(token))?;
    let certificate = request_certificate_with(&bearer.client(), name, &Purpose::Client, key).await;
    let certificate = certificate.map_err(|error| match &error {
        RequestError::Ask(source) if is_unauthorized(source) => anyhow::anyhow!(
            "{} does not know the token: it has expired or was revoked; `plumb token create` makes another there",
            args.server
        ),
        _ => error.into(),
    })?;
    Ok((authority, certificate))
}

/// The bootstrap token: from the command line, a file, or standard input.
fn token(args: &Node) -> anyhow::Result<Option<String>> {
    let Some(file) = &args.token_file else { return Ok(args.token.clone()) };
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(MAX_TOKEN_FILE).read_to_string(&mut text)
    } else {
        File::open(file).and_then(|file| file.take(MAX_TOKEN_FILE).read_to_string(&mut text))
    };
    read.with_context(|| format!("reading the token from {}", file.display()))?;
    match text.trim() {
        "" => bail!("--token-file {}: it holds no token", file.display()),
        token => Ok(Some(token.to_owned())),
    }
}

fn is_unauthorized(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 401)
}

fn read(path: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}
