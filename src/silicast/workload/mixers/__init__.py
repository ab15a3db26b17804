"""Token mixers: how a layer lets tokens see each other. One file each."""
