# Programs that race against a project's protected files, in its directory: racer.pl ROUNDS END SEED
#
# Each race does its rounds and then goes on until it is killed. END is `exit`: the first process ends then, in the middle of
# all races; or `stay`: it makes the file `ready`. "evil" is written where the user's tools look, "bait" lies where links
# lead. Perl's core alone: images of Debian have no more.
use strict;

my ($rounds, $end, $seed) = @ARGV;
my @there = qw(.envrc .vscode/tasks.json .claude/settings.json .codex/config.toml .github/workflows/ci.yml .git/hooks/post-commit);

sub put {
    my ($file, $text) = @_;
    open(my $to, '>', $file) or return;
    print $to $text;
    close $to;
}

sub text {
    open(my $from, '<', $_[0]) or return '';
    local $/;
    return scalar <$from>;
}

# renameat2(2) with RENAME_EXCHANGE.
sub exchange {
    my ($one, $other) = @_;
    syscall(316, -100, $one, -100, $other, 2);
}

sub make { mkdir $_ for @_ }

sub git {
    my ($git) = @_;
    make($git, map { "$git/$_" } qw(hooks objects refs));
    put("$git/HEAD", "ref: refs/heads/main\n");
}

my %race = (
    # Directories above protected files change their names while another process writes by both names.
    parents => sub { rename('sub', 'moved'); rename('moved', 'sub') },
    writers => sub {
        for my $top (qw(sub moved)) {
            make("$top/.vscode");
            put("$top/$_", 'evil') for qw(.git/hooks/x .envrc .mcp.json .vscode/tasks.json);
        }
    },
    tops => sub {
        for my $name (qw(.git .github .vscode .codex)) {
            rename($name, "$name-away");
            make($name, "$name/hooks", "$name/workflows");
            put("$name/$_", 'evil') for qw(hooks/post-commit workflows/ci.yml tasks.json config.toml);
            put("$name-away/$_", 'evil') for qw(hooks/post-commit workflows/ci.yml tasks.json config.toml);
            rename("$name-away", $name);
        }
    },
    # Hard links to protected files, and of other files in their place.
    links => sub {
        put('t-link', 'evil');
        link('.envrc', 't-hard') and put('t-hard', 'evil') and unlink('t-hard');
        unlink('.envrc');
        link('t-link', '.envrc');
        rename('t-link', '.envrc');
        put('.envrc', 'evil');
        put('t-link', 'evil');
        link('t-link', '.mcp.json');
        rename('t-link', '.mcp.json');
        symlink('bait', '.idea') or unlink('.idea');
    },
    # A name that was not there comes and goes, with the directories above.
    missing => sub {
        for my $top ('.', 'sub') {
            make("$top/.zed", "$top/.config", "$top/.config/fish");
            put("$top/.zed/tasks.json", 'evil');
            put("$top/.config/fish/config.fish", 'evil');
            unlink("$top/.zed/tasks.json", "$top/.config/fish/config.fish");
            rmdir("$top/$_") for qw(.zed .config/fish .config);
        }
    },
    # A directory is exchanged with a link, and a repository with another one.
    exchanged => sub {
        make('.cursor');
        put('.cursor/mcp.json', 'evil');
        symlink('bait', 't-bait');
        exchange('.cursor', 't-bait');
        exchange('.vscode', 't-bait');
        exchange('.cursor', 't-bait');
        exchange('sub', 'fake');
    },
    # Links to the user's files outside stand where directories stood.
    outside => sub {
        for my $name ('.config', 'sub', 'new0', '.git/modules/m0', '.git/worktrees', '.zed') {
            my $link = 't-out-' . $name =~ s{.*/}{}r;
            symlink($name =~ /modules/ ? '../../../../outside' : $name =~ /git/ ? '../../../outside' : '../../outside', $link);
            exchange($name, $link);
            exchange($name, $link) if $_[0] % 3;
        }
    },
    # Repositories, submodules and second work trees that the run makes.
    made => sub {
        my $number = $_[0] % 20;
        for my $git ("new$number/.git", "bare$number.git", ".git/modules/m$number") {
            make($git =~ s{/.git$}{}r, '.git/modules');
            git($git);
            put("$git/hooks/post-checkout", 'evil');
            put("$git/config", "[core]\n\tfsmonitor = evil\n");
        }
        make('.git/worktrees', ".git/worktrees/w$number");
        put(".git/worktrees/w$number/HEAD", "ref: refs/heads/main\n");
        put(".git/worktrees/w$number/commondir", '../../../evil');
        rename("new$number", "newer$number");
    },
    # Settings are replaced as git does it, and written in place.
    settings => sub {
        my $text = text('.git/config');
        $text =~ s/\[x\].*//s;
        return unless $text =~ /pager/;
        put('t-config', "$text\[x]\n\ty = z\n[core]\n\tfsmonitor = evil\n");
        rename('t-config', '.git/config');
        put('.git/config.worktree', "[core]\n\thooksPath = evil\n");
    },
    # The user's work.
    work => sub { put("work/$_[0]", 'good') if $_[0] < $rounds; },
);

make(qw(work bait fake));
git('fake/.git');
put('fake/.git/hooks/pre-commit', 'evil');
put("bait/$_", 'bait') for qw(tasks.json mcp.json workspace.xml);
put('fake/.mcp.json', 'bait');

pipe(my $done, my $tell) or die;
for my $name (sort keys %race) {
    next if fork() // die;
    # Where nothing kills it.
    alarm 30;
    srand($seed++);
    for (my $round = 0; ; $round++) {
        syswrite($tell, '.') if $round == $rounds;
        # Only so many: a race that goes on is there to be killed.
        $race{$name}->($round);
        select(undef, undef, undef, rand(0.0004));
    }
}
close $tell;
my ($seen, $races) = (0, 0);
while ($races < keys %race) {
    vec(my $ready = '', fileno($done), 1) = 1;
    if (select($ready, undef, undef, 0.001)) {
        sysread($done, my $told, 1) or die 'all races ended';
        $races++;
    }
    $seen += grep { text($_) =~ /evil|bait/ } @there;
}
put('ready', 'good');
print "races $races seen $seen\n";
sleep 60 if $end eq 'stay';
