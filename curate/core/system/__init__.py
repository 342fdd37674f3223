"""What not every operating system has: the only room with calls of Linux or POSIX; what cannot work elsewhere says
so."""
