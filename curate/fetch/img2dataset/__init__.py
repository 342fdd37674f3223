"""The img2dataset downloader: client in this process, worker in a process of its own."""
