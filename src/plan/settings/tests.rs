//! Which of a project's settings stay visible, and which do not.

use super::*;
use crate::plan::never::NeverList;

fn harmless(file: &str, text: &str) -> bool {
    let settings = &NeverList::builtin().settings;
    settings.are_harmless(Path::new(file), text.as_bytes())
}

/// Projects have these, and do not work without them.
#[test]
fn a_projects_own_settings_are_harmless() {
    for (file, text) in [
        (".npmrc", ""),
        (
            ".npmrc",
            "save-exact=true\nlegacy-peer-deps=true\nengine-strict = true\n",
        ),
        (
            ".npmrc",
            "# comment\n; comment\nregistry=https://npm.example.test/\n@me:registry = https://npm.example.test/a/b/\n",
        ),
        (
            ".npmrc",
            "//npm.example.test/:_authToken=${NPM_TOKEN}\nalways-auth=true\n//npm.example.test/:always-auth=true\nauth-type=legacy\n",
        ),
        (
            ".npmrc",
            "# The registry of our company, see https://wiki.example.test/npm for node 20.\n# registry=https://other.example.test/\nregistry=https://npm.example.test:8443/repository/npm-group/\n",
        ),
        (
            ".npmrc",
            "shamefully-hoist=true\npublic-hoist-pattern[]=*eslint*\nnode-linker=hoisted\nuse-node-version=20.11.1\nsave-prefix='~'\nfetch-timeout=60000\nnode-options=--max-old-space-size=8192\nscript-shell=/bin/bash\ncache=.npm-cache\nstore-dir=~/.pnpm-store\n",
        ),
        (
            ".my.cnf",
            "[client]\nhost = db.example.test\nport=3306\nuser=app\nsocket=/run/mysqld/mysqld.sock\ndefault-character-set = utf8mb4\nssl-ca=/etc/ssl/certs/ca.pem\n",
        ),
        (
            ".pypirc",
            "[distutils]\nindex-servers = pypi\n\n[pypi]\nrepository: https://pypi.example.test/legacy/\nusername = __token__\npassword = ${PYPI_PASSWORD}\n",
        ),
        (
            ".gradle/gradle.properties",
            "org.gradle.jvmargs=-Xmx2g -XX:MaxMetaspaceSize=512m -Dfile.encoding=UTF-8 -XX:+HeapDumpOnOutOfMemoryError\norg.gradle.parallel=true\nandroid.useAndroidX=true\nkotlin.code.style=official\norg.gradle.daemon.idletimeout=3600000\nversion=1.2.3-SNAPSHOT\ngroup=com.example.app\nkotlinVersion=1.9.22\nminSdk=24\nsystemProp.http.proxyHost=proxy.example.test\n",
        ),
        (
            ".boto",
            "[Boto]\nhttps_validate_certificates = True\nproxy_port = 3128\n[GSUtil]\nparallel_thread_count = 8\n",
        ),
        (
            ".s3cfg",
            "[default]\nhost_base = s3.example.test\nhost_bucket = %(bucket)s.s3.example.test\nuse_https = True\nsignature_v2 = False\naccess_key =\nsecret_key =\n",
        ),
    ] {
        assert!(harmless(file, text), "{file}: {text}");
    }
}

/// M2: secrets that a reviewer found visible, and those known before.
#[test]
fn tokens_keys_and_unknown_lines_are_not_harmless() {
    const NPM: [&str; 23] = [
        "//npm.example.test/:_authToken=npm_abcdef",
        "save-exact=true\n//npm.example.test/:_password = 'c2VjcmV0'",
        "_auth=\"dXNlcjpwYXNz\"",
        "registry=https://me:word@npm.example.test/",
        "registry=https://s3cr3ttoken@npm.example.test/",
        "registry=https://${TOKEN}@npm.example.test/",
        "registry=https://npm.example.test/?token=abc",
        "registry=https://npm.example.test/k7Jd82nFq0sLx3Pz/npm/",
        "the-secret-of-the-project",
        "_authToken=${A}${B}x",
        "_authToken=${A}s3cr3t${B}",
        "_authToken=${NPM_TOKEN:-s3cr3t}",
        "[//r/:_authToken=s3cr3t]",
        "# //r/:_authToken=s3cr3t",
        "; my old token: k7Jd82nFq0sLx3Pz",
        "# password: hunter",
        "# hunter2",
        "key=\"-----BEGIN PRIVATE KEY-----\"",
        "//r/:certfile=k7Jd82nFq0sLx3Pz",
        "_authToken=\\\nc2VjcmV0=",
        "_authToken=\n  c2VjcmV0=",
        "save-exact=true; _authToken=x",
        "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3JldA==",
    ];
    let rest = [
        (".my.cnf", "[client]\nuser=me\npassword=x"),
        (".my.cnf", "[client]\npassword1=x"),
        (".my.cnf", "[client]\npass=12345"),
        (".my.cnf", "[client]\nloose-pw=12345"),
        (".boto", "[Credentials]\ngs_oauth2_refresh_token = 1/abc"),
        (".boto", "[Boto]\nproxy_pass = x"),
        (".npmrc", "https-proxy=me:hunter2@proxy.example.test:3128"),
        (".npmrc", "proxy=http:me:hunter2@proxy.example.test:3128"),
        (".npmrc", "registry=https:///me:hunter2@npm.example.test/"),
        (".boto", "[Boto]\nproxy = me:hunter2@proxy.example.test"),
        (".boto", "[GSUtil]\nencryption_key = 1234"),
        (".s3cfg", "access_key = AKIA\nsecret_key = abc"),
        (".pypirc", "[pypi]\npassword: aGVsbG8="),
        (".pypirc", "[pypi]\nusername: ghp_aGVsbG8"),
        (".gradle/gradle.properties", "signingKeyPassword=x"),
        (".gradle/gradle.properties", "mavenSecret=x"),
        (".gradle/gradle.properties", "nexusUser=somebody"),
        (".gradle/gradle.properties", "gpr.key=ghs_abcdefgh"),
        (".gradle/gradle.properties", "gpr.other=k7Jd82nFq0"),
        (".gradle/gradle.properties", "gpr.other k7Jd82nFq0"),
        (
            ".gradle/gradle.properties",
            "signingInMemoryKey=-----BEGIN PGP PRIVATE KEY BLOCK-----\\n\\nabc",
        ),
        (
            ".gradle/gradle.properties",
            "org.gradle.jvmargs=-Xmx2g -Dhttps.proxyPassword=x",
        ),
        (
            ".gradle/gradle.properties",
            "android.injected.signing.store.password=x",
        ),
        (
            ".gradle/gradle.properties",
            "org.gradle.project.signingKey=x",
        ),
    ];
    let npm = NPM.map(|text| (".npmrc", text));
    for (file, text) in npm.into_iter().chain(rest) {
        assert!(!harmless(file, text), "{file}: {text}");
    }
    let settings = &NeverList::builtin().settings;
    assert!(!settings.are_harmless(Path::new(".npmrc"), b"a=\xff"));
    assert!(!settings.are_harmless(Path::new(".netrc"), b""));
}

/// The token prefixes that their vendors document are never visible, under any key.
#[test]
fn a_marked_token_is_never_harmless() {
    for mark in [
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "glrt-",
        "npm_",
        "pypi-AgE",
        "xoxb-",
        "xoxp-",
        "hf_",
        "sk-",
        "dckr_pat_",
        "AKIA",
        "ASIA",
        "eyJ",
    ] {
        for key in ["registry", "cache", "save-prefix", "anything"] {
            assert!(!harmless(".npmrc", &format!("{key}={mark}abc")), "{mark}");
        }
        assert!(!harmless(".npmrc", &format!("# {mark}abc")), "{mark}");
    }
    // Only at the start of a word.
    assert!(harmless(".npmrc", "cache=/disk-cache/task-one"));
}
