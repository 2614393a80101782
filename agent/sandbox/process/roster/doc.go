// Package roster is where the runners of one user on one machine tell each other which files no job may see. It is a
// directory that belongs to this user alone and that they all find by the same path:
//
//   - A symbolic link stands for each path that is to be hidden. It stays when its runner has ended, because what it
//     leads to does: a token is as good then. Links to what is gone are removed by whoever adds one.
//   - A socket stands for each runner that hides files from jobs. To connect to it is to ask that runner to look again. It
//     closes the connection when its jobs, those that run included, see nothing of what was listed when it was asked;
//     before that it sends a line for each path that it could not hide. A socket that nobody listens to is removed.
//
// So a runner lists its files, tells the others, and knows that no job of theirs opens what it writes from then on, unless
// one had a directory above open already.
//
// The directory itself has to be hidden from jobs: who can write there can hide any path from them, or none.
package roster
