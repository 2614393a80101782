//go:build !linux && !darwin

package diff

import "io/fs"

// identify has no ctime to tell here, so every file is read at every snapshot.
func identify(fs.FileInfo) identity { return identity{} }
