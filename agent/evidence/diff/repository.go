package diff

import (
	"context"
	"errors"
	"os"

	"github.com/everdict/everdict/agent/evidence/diff/internal/gitobj"
)

// Branch is the one branch of the repository that WriteRepository makes.
const Branch = "main"

// repositoryConfig makes the agent's git work alike on every machine, whatever
// the machine's own configuration says: it can commit (an identity, no signing),
// it sees the bytes as they are, and no background process outlives a command.
const repositoryConfig = `[core]
	repositoryformatversion = 0
	filemode = true
	bare = false
	logallrefupdates = true
	autocrlf = false
	safecrlf = false
	ignorecase = false
	fsmonitor = false
[user]
	name = Agent
	email = agent@everdict.invalid
[commit]
	gpgsign = false
[tag]
	gpgsign = false
[gc]
	auto = 0
[maintenance]
	auto = false
`

// WriteRepository makes the directory a git repository whose only commit is the
// baseline: one branch, no remote, tag, stash, reflog, alternate or other object
// (F47). The index is clean. The object files are copies: the agent can destroy
// them without reaching the baseline's own. It is called once, right after Take,
// in a directory without a .git.
func (b *Baseline) WriteRepository(ctx context.Context) error {
	if err := b.writeRepository(ctx); err != nil {
		return fail(ctx, StageBaseline, err)
	}
	return nil
}

func (b *Baseline) writeRepository(ctx context.Context) error {
	root, err := b.cfg.open()
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Mkdir(".git", 0o777); err != nil {
		return err
	}
	// A process that setup left can turn any of it into a link: all is written
	// through roots, which are left by none.
	dir, err := root.OpenRoot(".git")
	if err != nil {
		return err
	}
	defer dir.Close()
	// There is no more in it than git needs: git makes the rest when it wants
	// it, and each file costs an attempt more than what is in it.
	for _, sub := range []string{"refs", "objects", "objects/pack"} {
		if err := dir.Mkdir(sub, 0o777); err != nil {
			return err
		}
	}
	packs, err := dir.OpenRoot("objects/pack")
	if err != nil {
		return err
	}
	defer packs.Close()
	if _, err := b.pack.Install(packs); err != nil {
		return err
	}
	read := newReader(ctx, root, b.cfg.Limits)
	defer read.close()
	if err := b.addLarge(read, packs); err != nil {
		return err
	}
	for _, f := range []struct{ name, content string }{
		{"HEAD", "ref: refs/heads/" + Branch + "\n"},
		{"config", repositoryConfig},
		{"index", string(b.index())},
		{"packed-refs", "# pack-refs with: peeled fully-peeled sorted \n" + b.Commit() + " refs/heads/" + Branch + "\n"},
	} {
		if err := writeNew(dir, f.name, f.content); err != nil {
			return err
		}
	}
	return nil
}

// writeNew writes a file that is not there yet, nor a link of its name.
func writeNew(dir *os.Root, name, content string) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// addLarge gives the agent's repository the files that are too large for the
// private store: its commit is whole.
func (b *Baseline) addLarge(read *reader, packs *os.Root) error {
	const temp = "tmp_pack_large"
	var pack *gitobj.Pack
	for i := range b.entries {
		e := &b.entries[i]
		if e.ignored || e.id.IsZero() || e.size <= b.cfg.Limits.FileBytes || e.mode == gitobj.ModeSymlink {
			continue
		}
		if pack == nil {
			pack = gitobj.NewPack(func() (*os.File, error) { return packs.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) })
		}
		if err := b.addFile(read, pack, e); err != nil {
			pack.Abort()
			return err
		}
	}
	if pack == nil {
		return nil
	}
	sealed, err := pack.Seal()
	if err != nil {
		return err
	}
	return sealed.Settle(packs, temp) // what is streamed is never in memory
}

func (b *Baseline) addFile(read *reader, pack *gitobj.Pack, e *entry) error {
	dir, name, err := read.at(e.path)
	if err != nil {
		return err
	}
	f, err := read.open(dir, name, e)
	if err != nil {
		return err
	}
	defer f.Close()
	id, err := pack.AddStream(e.size, &contextReader{read.ctx, f})
	if err == nil && id != e.id {
		err = errReplaced
	}
	return err
}

// index encodes the agent's index.
func (b *Baseline) index() []byte {
	list := make([]gitobj.IndexEntry, 0, len(b.entries))
	for i := range b.entries {
		e := &b.entries[i]
		if !e.ignored && !e.id.IsZero() {
			list = append(list, gitobj.IndexEntry{Entry: gitobj.Entry{Path: e.path, Mode: e.mode, ID: e.id}, Stat: e.indexStat()})
		}
	}
	return gitobj.EncodeIndex(list)
}

// indexStat is the part of a file's status that git's index holds.
func (e *entry) indexStat() gitobj.Stat {
	s := e.stat
	if !s.valid {
		return gitobj.Stat{} // git reads the file once and remembers it then
	}
	const second = 1_000_000_000
	return gitobj.Stat{
		CtimeSec: uint32(s.ctime / second), CtimeNsec: uint32(s.ctime % second),
		MtimeSec: uint32(s.mtime / second), MtimeNsec: uint32(s.mtime % second),
		Dev: uint32(s.dev), Ino: uint32(s.ino), UID: s.uid, GID: s.gid, Size: uint32(e.size),
	}
}
