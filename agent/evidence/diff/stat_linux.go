package diff

import (
	"io/fs"
	"syscall"
)

func identify(info fs.FileInfo) identity {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{dev: uint64(s.Dev), ino: s.Ino, mtime: s.Mtim.Nano(), ctime: s.Ctim.Nano(), uid: s.Uid, gid: s.Gid, valid: true}
}
